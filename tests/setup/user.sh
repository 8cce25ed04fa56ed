#!/usr/bin/env bash
# An unprivileged account for tests that must not run as root (Apptainer, Slurm). Run as root.
#
#   user.sh add [NAME]     makes the account when it is missing (default name: ambtest)
#   user.sh purge [NAME]   removes it with its home, if this script made it
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"

readonly RECORDS=/var/lib/automedbench-setup/users

add() {
  if id "$1" >/dev/null 2>&1; then
    echo "user $1: there already"
    return
  fi
  need_root
  mkdir -p "$RECORDS"
  touch "$RECORDS/$1"
  useradd --create-home --shell /bin/bash "$1"
  echo "user $1: made, home $(getent passwd "$1" | cut -d: -f6)"
}

purge() {
  if [ ! -e "$RECORDS/$1" ]; then
    echo "user $1: not made by this script; nothing removed"
    return
  fi
  need_root
  pgrep -u "$1" >/dev/null 2>&1 && die "processes of $1 are still running (ps -u $1); end them first"
  if id "$1" >/dev/null 2>&1; then userdel --remove "$1" 2>/dev/null; fi
  rm -f "$RECORDS/$1"
  rmdir --ignore-fail-on-non-empty -p "$RECORDS"
  echo "user $1: removed"
}

case ${1:-} in
  add | purge) "$1" "${2:-ambtest}" ;;
  *) die "usage: $0 add|purge [NAME]" ;;
esac
