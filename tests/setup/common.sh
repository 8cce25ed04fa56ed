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

# Root's apt needs no helper account here, so that a /tmp without the sticky bit does not stop it.
apt_quietly() {
  apt-get -qq -o APT::Sandbox::User=root -o Dpkg::Use-Pty=0 "$@"
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

installed_packages() {
  dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' | awk '$1 == "ii" { print $2 }' | sort -u
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

# install_packages RECORD NAME...: installs what is missing and adds every package that this brought
# along (dependencies too) to the file RECORD, one name per line, for remove_packages.
install_packages() {
  local record=$1 before missing
  shift
  mapfile -t missing < <(missing_packages "$@")
  [ ${#missing[@]} -gt 0 ] || return 0
  say "installing ${missing[*]}"
  apt_quietly update || say "apt-get update reported a problem; going on with the lists that exist"
  before=$(installed_packages)
  without_services apt_quietly install -y --no-install-recommends "${missing[@]}" >/dev/null ||
    die "apt-get could not install ${missing[*]}; run 'apt-get install ${missing[*]}' to see why"
  mkdir -p "$(dirname "$record")"
  comm -13 <(printf '%s\n' "$before") <(installed_packages) >>"$record"
}

# remove_packages RECORD: removes what install_packages recorded there, and nothing else.
remove_packages() {
  local record=$1 names
  [ -s "$record" ] || return 0
  mapfile -t names < <(sort -u "$record")
  say "removing the packages that were installed: ${names[*]}"
  without_services apt_quietly purge -y "${names[@]}" >/dev/null
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
