# Shared by the set-up scripts beside this file; sourced, never run.

set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
# A caller's language or apt settings must not change what the scripts below parse.
export LC_ALL=C.UTF-8

say() { printf '[%s] %s\n' "$(basename "$0" .sh)" "$*" >&2; }

die() {
  say "ERROR: $*"
  exit 1
}

need_root() {
  [ "$(id -u)" = 0 ] || die "must be run as root (it installs packages and system files)"
}

# Root's apt needs no helper account here, so that a /tmp without the sticky bit does not stop it; another
# apt that is at work is waited for.
apt_quietly() {
  apt-get -qq -o APT::Sandbox::User=root -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 "$@"
}

# Maintainer scripts are chatty; what they say is shown only when they fail.
quietly() {
  local output code=0
  output=$("$@" 2>&1 </dev/null) || code=$?
  [ "$code" = 0 ] || printf '%s\n' "$output" >&2
  return "$code"
}

package_installed() {
  dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'ok installed'
}

missing_packages() {
  local name
  for name in "$@"; do
    package_installed "$name" || printf '%s\n' "$name"
  done
}

# Packages start their services when they are installed; ours are started by hand, with our settings.
without_services() {
  local policy=/usr/sbin/policy-rc.d code=0
  if [ -e "$policy" ]; then
    "$@"
    return
  fi
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
  "$@" || code=$?
  rm -f "$policy"
  return "$code"
}

# Packages that 'apt-get install NAME...' would add; one that it would only upgrade shows its old version in
# brackets and is not ours to remove later.
packages_to_add() {
  apt-get -s -o Debug::NoLocking=1 install --no-install-recommends "$@" |
    awk '$1 == "Inst" && $3 !~ /^\[/ { print $2 }'
}

packages_to_remove() { apt-get -s -o Debug::NoLocking=1 purge "$@" | awk '$1 == "Purg" || $1 == "Remv" { print $2 }'; }

# install_packages RECORD NAME...: installs what is missing and adds every package that this brings along
# (dependencies too) to the file RECORD, one name per line, for remove_packages.
install_packages() {
  local record=$1 missing
  shift
  mapfile -t missing < <(missing_packages "$@")
  [ ${#missing[@]} -gt 0 ] || return 0
  say "installing ${missing[*]}"
  apt_quietly update || say "apt-get update reported a problem; going on with the lists that exist"
  mkdir -p "$(dirname "$record")"
  packages_to_add "${missing[@]}" >>"$record"
  without_services quietly apt_quietly install -y --no-install-recommends "${missing[@]}" ||
    die "apt-get could not install ${missing[*]}"
}

# remove_packages RECORD: removes what install_packages recorded there, and nothing else.
remove_packages() {
  local record=$1 names others
  [ -s "$record" ] || return 0
  mapfile -t names < <(sort -u "$record" | while read -r name; do ! package_installed "$name" || echo "$name"; done)
  [ ${#names[@]} -gt 0 ] || return 0
  others=$(comm -13 <(sort -u "$record") <(packages_to_remove "${names[@]}" | sort -u) | tr '\n' ' ')
  if [ -n "$others" ]; then
    say "the packages that were installed stay, because these came to need them: $others"
    return 0
  fi
  say "removing the packages that were installed: ${names[*]}"
  without_services quietly apt_quietly purge -y "${names[@]}"
}

# The archive that apt already uses for Debian itself (not its security or third-party archives),
# or DEBIAN_MIRROR. No host name is written down here.
find_mirror() {
  local mirror=${DEBIAN_MIRROR:-}
  [ -n "$mirror" ] || mirror=$(
    apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(SITE)' 'Created-By: Packages' |
      awk -F'|' '$1 == "Debian" && $2 == "Debian" { print $3; exit }'
  )
  [ -n "$mirror" ] || die "apt of this machine uses no Debian archive; set DEBIAN_MIRROR to the URL of one"
  printf '%s\n' "$mirror"
}

# wait_for SECONDS WHAT COMMAND...: polls five times a second.
wait_for() {
  local seconds=$1 what=$2 tries
  shift 2
  for ((tries = seconds * 5; tries > 0; tries--)); do
    "$@" >/dev/null 2>&1 && return 0
    sleep 0.2
  done
  die "$what: not ready after $seconds s"
}
