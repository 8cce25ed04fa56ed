#!/usr/bin/env bash
# Puts Apptainer on a Debian or Ubuntu machine that has none. Run as root.
#
#   apptainer.sh [install]   does nothing where apptainer works already
#   apptainer.sh purge       removes everything that install put in place
#
# Where the distribution has a package, it is installed. Debian 12 has none, and the package of Debian's
# unstable suite needs a newer C library. It is unpacked beside the system together with its own libraries,
# and its two programs are pointed at those (patchelf); the system's C library stays as it is.
#
# Settings (environment):
#   PATCHELF        the patchelf program           default: .venv/bin/patchelf of this checkout, or PATH
#   DEBIAN_MIRROR   base URL of a Debian archive   default: the one that this machine's apt uses
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"

readonly STATE=/var/lib/automedbench-setup/apptainer
readonly FILES=$STATE/files PACKAGES=$STATE/packages
readonly LIBRARIES=/opt/automedbench-apptainer/lib
readonly SIDE_PACKAGES=(squashfuse squashfs-tools fuse-overlayfs uidmap fuse3)
readonly KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

works() { command -v apptainer >/dev/null && apptainer version >/dev/null 2>&1; }

installed_here() { [ -e "$FILES" ] || [ -e "$PACKAGES" ]; }

report() { echo "apptainer $(apptainer version) at $(command -v apptainer) ($1)"; }

find_patchelf() {
  local candidate
  for candidate in "${PATCHELF:-}" "$here/../../.venv/bin/patchelf" "$(command -v patchelf || true)"; do
    [ -n "$candidate" ] && [ -x "$candidate" ] && realpath "$candidate" && return
  done
  die "no patchelf found; run 'make' for the project's .venv, or set PATCHELF=/path/to/patchelf"
}

# apt-get or apt-cache with sources, lists and cache of its own: the machine's never see the unstable suite.
# Its apt.conf.d (proxies, certificates) still applies.
private_apt() {
  local work=$1 program=$2
  shift 2
  "$program" -qq -o APT::Sandbox::User=root -o APT::Architecture="$(dpkg --print-architecture)" \
    -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null \
    -o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts=/dev/null \
    -o Dir::State="$work/state" -o Dir::State::status="$work/status" -o Dir::Cache="$work/cache" "$@"
}

# Unpacks apptainer and the libraries that it names itself; what those need in turn, Debian 12 has.
unpack_unstable() {
  local work=$1 package names
  mkdir -p "$work"/{state/lists/partial,cache/archives/partial,debs,apptainer,libraries}
  : >"$work/status"
  echo "deb [signed-by=$KEYRING] $(find_mirror) unstable main" >"$work/sources.list"
  private_apt "$work" apt-get update
  mapfile -t names < <(
    private_apt "$work" apt-cache depends apptainer | sed -n 's/^ *Depends: \(lib[^ ]*\)$/\1/p'
  )
  (cd "$work/debs" && private_apt "$work" apt-get download apptainer "${names[@]}")
  dpkg -x "$work"/debs/apptainer_*.deb "$work/apptainer"
  for package in "$work"/debs/lib*.deb; do
    dpkg -x "$package" "$work/libraries"
  done
}

# --force-rpath: an RPATH also serves the libraries' own needs, a RUNPATH would not.
point_at_libraries() {
  local patchelf=$1 tree=$2 program loader
  loader=$(basename "$("$patchelf" --print-interpreter "$tree/usr/bin/apptainer")")
  for program in "$tree/usr/bin/apptainer" "$tree"/usr/lib/*/apptainer/bin/starter; do
    "$patchelf" --force-rpath --set-rpath "$LIBRARIES" "$program"
    "$patchelf" --set-interpreter "$LIBRARIES/$loader" "$program"
  done
}

# place SOURCE DESTINATION: copies a file or link, refuses to overwrite, and notes what it made.
place() {
  [ ! -e "$2" ] || die "$2 exists and belongs to something else; remove it, or that Apptainer, first"
  mkdir -p "$(dirname "$2")"
  printf '%s\n' "$2" >>"$FILES"
  cp -P --preserve=mode,timestamps "$1" "$2"
}

place_tree() {
  local tree=$1 part file
  shift
  for part in "$@"; do
    while IFS= read -r -d '' file; do
      place "$file" "${file#"$tree"}"
    done < <(find "$tree$part" \( -type f -o -type l \) -print0)
  done
}

place_libraries() {
  local file
  while IFS= read -r -d '' file; do
    [ -e "$LIBRARIES/$(basename "$file")" ] || place "$file" "$LIBRARIES/$(basename "$file")"
  done < <(find "$1" -name gconv -prune -o \( -name '*.so' -o -name '*.so.*' \) ! -type d -print0)
}

# In a subshell, so that its trap clears the scratch folder on every way out.
install_from_unstable() (
  patchelf=$(find_patchelf)
  [ -e "$KEYRING" ] || install_packages "$PACKAGES" debian-archive-keyring
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  unpack_unstable "$work"
  point_at_libraries "$patchelf" "$work/apptainer"
  place_libraries "$work/libraries"
  place_tree "$work/apptainer" /usr/bin /usr/lib /etc/apptainer
  mkdir -p /var/lib/apptainer/mnt/session
)

has_own_package() { [ -n "$(apt-cache madison apptainer 2>/dev/null)" ]; }

# An unprivileged user mounts images through /dev/fuse and builds below /tmp.
open_to_users() {
  [ -e /dev/fuse ] || mknod /dev/fuse c 10 229
  chmod 666 /dev/fuse
  chmod 1777 /tmp
}

install_apptainer() {
  if works && ! installed_here; then
    report "was there already; nothing changed"
    return
  fi
  need_root
  mkdir -p "$STATE"
  works || remove_files
  install_packages "$PACKAGES" "${SIDE_PACKAGES[@]}"
  if ! works && has_own_package; then
    install_packages "$PACKAGES" apptainer
  elif ! works; then
    install_from_unstable
  fi
  open_to_users
  works || die "apptainer was put in place but does not start; 'apptainer version' says why, 'apptainer.sh purge' undoes it"
  report "installed by this script; use it as an unprivileged user"
}

remove_files() {
  local file
  [ -e "$FILES" ] || return 0
  while IFS= read -r file; do
    rm -f "$file"
    rmdir --ignore-fail-on-non-empty -p "$(dirname "$file")" 2>/dev/null || true
  done <"$FILES"
  rm -f "$FILES"
}

purge() {
  if ! installed_here; then
    echo "nothing to remove: this script installed no apptainer here"
    return
  fi
  need_root
  remove_files
  remove_packages "$PACKAGES"
  rm -rf "$STATE" "${LIBRARIES%/lib}"
  rmdir --ignore-fail-on-non-empty -p /var/lib/apptainer/mnt/session "$(dirname "$STATE")" 2>/dev/null || true
  echo "apptainer removed (modes of /dev/fuse and /tmp left as they are)"
}

case ${1:-install} in
  install) install_apptainer ;;
  purge) purge ;;
  *) die "usage: $0 [install|purge]" ;;
esac
