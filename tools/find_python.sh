#!/bin/sh
# Prints the path of a CPython >= 3.12 that is on this machine (3.12 and 3.13, which we test on, first).
# OSMOSIS_PYTHON overrides the search. Exits 1 with one clear line when there is none.
works() {
    "$1" -c 'import sys; sys.exit(not (sys.version_info >= (3, 12) and sys.implementation.name == "cpython"))' >/dev/null 2>&1
}
if [ -n "${OSMOSIS_PYTHON:-}" ]; then
    works "$OSMOSIS_PYTHON" && { echo "$OSMOSIS_PYTHON"; exit 0; }
    echo "OSMOSIS_PYTHON=$OSMOSIS_PYTHON is not a CPython >= 3.12" >&2; exit 1
fi
for version in 3.12 3.13 3.14 3; do
    for candidate in "python$version" \
        "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$version"*/bin/python \
        "$HOME"/.local/share/uv/python/cpython-"$version"*/bin/python \
        /usr/local/bin/"python$version" /usr/bin/"python$version" /opt/homebrew/bin/"python$version"; do
        path=$(command -v "$candidate" 2>/dev/null) || continue
        if works "$path"; then
            "$path" -c 'import sys; print(sys.executable)'
            exit 0
        fi
    done
done
echo "no CPython >= 3.12 found: install Python 3.12 or newer, or set OSMOSIS_PYTHON to its path" >&2
exit 1
