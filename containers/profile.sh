# A login shell, as agents' programs start them, resets PATH: it gets the container's back.
PATH="${AUTOMEDBENCH_PATH:-/workspace/.local/bin:$PATH}"
export PATH
