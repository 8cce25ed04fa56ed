#!/usr/bin/env bash
# The README's two commands as a newcomer meets them: an ordinary user of a minimal Debian 12 that has Python, make and
# git, and nothing else. Run as root, from the repository.
#
#   stranger.sh DIR     the root lies in DIR; it is made when it is missing, and the user's .venv is kept there
#
# The demo's end is compared with what it promises. Which tests passed is then in DIR/home/user/automedbench/build/passed:
# they need not run a second time (tests/passed_elsewhere.py).
#
# What pip of this machine is set to (PIP_* and certificates in the environment, its configuration files, the folders
# that these name) holds in there as well.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"

readonly PACKAGES=python3,python3-venv,make,git
readonly CLONE=/home/user/automedbench
# Where pip looks for its configuration here → and there.
readonly -A PIP_FILES=(
  [/etc/pip.conf]=/etc/pip.conf
  [${PIP_CONFIG_FILE:-/etc/xdg/pip/pip.conf}]=/etc/xdg/pip/pip.conf
  [$HOME/.pip/pip.conf]=/home/user/.pip/pip.conf
  [${XDG_CONFIG_HOME:-$HOME/.config}/pip/pip.conf]=/home/user/.config/pip/pip.conf
)

network_variables() { env | grep -E '^(PIP_|SSL_|REQUESTS_|CURL_)|_(proxy|PROXY)=' | grep -v '^PIP_CONFIG_FILE=' || true; }

# Folders of this machine that these settings name: two levels, so that an index finds its files beside it.
places() {
  {
    network_variables
    cat "${!PIP_FILES[@]}" 2>/dev/null || true
  } | grep -oE "(file://)?/[^] \"',:]+" | sed 's,^file://,,' | cut -d/ -f1-3 | sort -u |
    while read -r place; do [ ! -d "$place" ] || printf '%s\n' "$place"; done
}

# A clone of what git tracks or would track, so that uncommitted work is tried as well.
fresh_clone() {
  local clone=$root$CLONE kept=$root/home/user/venv-of-last-time
  [ ! -d "$clone/.venv" ] || { rm -rf "$kept" && mv "$clone/.venv" "$kept"; }
  rm -rf "$clone"
  mkdir -p "$clone/build"
  git -c safe.directory='*' ls-files -z --cached --others --exclude-standard |
    tar --create --null --ignore-failed-read --files-from=- | tar --extract --directory="$clone"
  [ ! -d "$kept" ] || mv "$kept" "$clone/.venv"
  git -C "$clone" init -q
  git -C "$clone" add -A
  chown -R --reference="$root/home/user" "$clone"
}

# In namespaces of its own: nothing is mounted when it ends, and nothing runs.
enter() {
  unshare --mount --pid --fork --kill-child -- bash -euo pipefail -c '
    root=$1
    mount --make-rprivate /
    mount --rbind /dev "$root/dev"
    mount -t proc proc "$root/proc"
    mount -t tmpfs -o mode=1777 tmp "$root/dev/shm"
    while read -r place; do
      mkdir -p "$root$place"
      mount --bind -o ro "$place" "$root$place"
    done <<<"$2"
    shift 2
    # This shell stays, as the first process in there: it buries processes that lost their parent.
    code=0
    chroot --userspec=user:user "$root" "$@" || code=$?
    exit "$code"
  ' - "$root" "$(places)" "$@"
}

as_stranger() {
  local variables
  mapfile -t variables < <(network_variables)
  enter /usr/bin/env -i HOME=/home/user PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 "${variables[@]}" \
    /bin/bash -c "cd $CLONE && exec \"\$@\"" - "$@" </dev/null
}

[ $# -eq 1 ] || die "usage: $0 DIR"
need_root
root=$(realpath -m "$1")
bash "$here/debian_root.sh" "$root" "$PACKAGES"
[ -d "$root/home/user" ] || chroot "$root" useradd --create-home --shell /bin/bash user
cp --remove-destination /etc/resolv.conf /etc/hosts "$root/etc/"
for file in "${!PIP_FILES[@]}"; do
  rm -f "$root${PIP_FILES[$file]}"
  [ ! -f "$file" ] || install -D -m 644 "$file" "$root${PIP_FILES[$file]}"
done
for folder in "$root"/home/user/.config "$root"/home/user/.pip; do
  [ ! -d "$folder" ] || chown -R --reference="$root/home/user" "$folder"
done
find "$root/tmp" -mindepth 1 -delete # of the last time
fresh_clone
as_stranger make demo 2>&1 | tee "$root$CLONE/build/demo.log"
as_stranger env AMB_RECORD="$CLONE/build/passed" tests/setup/make_tests.sh test
as_stranger env AMB_RECORD="$CLONE/build/passed" AMB_DEMO="$CLONE/build/demo.log" \
  .venv/bin/python -m pytest -q tests/workflow/test_full_demo.py
