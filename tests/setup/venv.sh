#!/usr/bin/env bash
# Make a virtual environment where `python3 -m venv` fails: Debian and Ubuntu keep it in a package of its own.
#   venv.sh PYTHON FOLDER
set -euo pipefail
python=$1 folder=$2
rm -rf "$folder"
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  version=$("$python" -c 'import sys; print(f"{sys.version_info[0]}.{sys.version_info[1]}")')
  apt-get -qq update
  DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "python${version}-venv" >/dev/null
  exec "$python" -m venv "$folder"
fi
echo "$python cannot make virtual environments: install its venv module, then run the same command again." >&2
echo "On Debian and Ubuntu: sudo apt-get install python3-venv" >&2
exit 1
