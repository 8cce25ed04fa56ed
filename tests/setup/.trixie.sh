#!/usr/bin/env bash
# Makes a minimal Debian 12 root file system, the base of the container images. Run as root.
#
#   debian_root.sh DIR [DEFINITION | PACKAGES]   does nothing when DIR is complete and was made by this recipe
#
# In it besides the minimum: the packages that a definition of containers/ asks for (default: light.def), so that a build
# needs no network; or PACKAGES, with commas.
# Any user can then run 'apptainer build base.sif DIR', or give DIR as the base to scripts/build_image.py.
# mmdebstrap is installed when it is missing. Setting: DEBIAN_MIRROR, default the archive that apt uses.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"

readonly SUITE=trixie

packages_of() {
  local named
  named=$(tr '\n' ' ' <"$1" | sed 's/.* packages="\([^"]*\)".*/\1/')
  echo python3 python3-pip python3-venv $named | tr ' ' ','
}

wanted=${2:-$here/../../containers/light.def}
[ ! -f "$wanted" ] || wanted=$(packages_of "$wanted")
readonly INCLUDE=$wanted
readonly RECIPE_VERSION=1
readonly STAMP=etc/automedbench-base

recipe() { printf '%s\n' "debian $SUITE, recipe $RECIPE_VERSION, $INCLUDE"; }

complete() { [ -f "$1/$STAMP" ] && [ "$(cat "$1/$STAMP")" = "$(recipe)" ]; }

# A user who copies the tree must be able to read all of it and gains nothing by device nodes or set-uid.
open_to_users() {
  find "$1/dev" -mindepth 1 -delete
  find "$1" -xdev -type f -perm /6000 -exec chmod ug-s {} +
  chmod -R a+rX "$1"
}

make_root() {
  local target=$1 unfinished="$1.unfinished"
  rm -rf "$unfinished"
  mmdebstrap --quiet --mode=root --variant=minbase --include="$INCLUDE" \
    --aptopt='Acquire::Languages "none"' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    "$SUITE" "$unfinished" "$(find_mirror)"
  open_to_users "$unfinished"
  recipe >"$unfinished/$STAMP"
  rm -rf "$target"
  mv "$unfinished" "$target"
}

refuse_foreign() {
  [ ! -e "$1" ] || [ -f "$1/$STAMP" ] || [ -z "$(ls -A "$1")" ] ||
    die "$1 exists and was not made by this script; give another folder, or remove it"
}

[ $# -eq 1 ] || [ $# -eq 2 ] || die "usage: $0 DIR [PACKAGES]"
target=$(realpath -m "$1")
if complete "$target"; then
  echo "debian root $target: complete already ($(du -sm "$target" | cut -f1) MB)"
  exit 0
fi
need_root
refuse_foreign "$target"
install_packages /var/lib/automedbench-setup/debian_root/packages mmdebstrap
mkdir -p "$(dirname "$target")"
make_root "$target"
echo "debian root $target: made ($(du -sm "$target" | cut -f1) MB)"
