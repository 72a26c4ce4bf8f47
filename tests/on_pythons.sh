#!/usr/bin/env bash
# What needs no torch, of a wheel, on every Python that is asked for and found: on_pythons.sh WHEEL 3.10 3.12
# One is found as `python3.10` on PATH, or among pyenv's versions. Each has an environment, .venv-3.10.
set -uo pipefail
wheel=$1
shift

find_python() {  # of a version such as 3.10
    local found
    found=$(command -v "python$1") && "$found" -c "" 2>/dev/null && echo "$found" && return
    command -v pyenv >/dev/null || return  # its shims are on PATH for versions that are not chosen, too
    found=$(pyenv versions --bare | grep -x "${1//./\\.}\.[0-9]*" | sort -V | tail -1)
    [ -n "$found" ] && echo "$(pyenv prefix "$found")/bin/python"
}

test_on() {  # an interpreter and its version
    local venv=.venv-$2
    [ -x "$venv/bin/python" ] || "$1" -m venv "$venv" || return
    "$venv/bin/pip" install -q -r requirements-test.txt || return
    "$venv/bin/pip" install -q "$wheel" || return
    "$venv/bin/pip" install -q --force-reinstall --no-deps "$wheel" || return
    "$venv/bin/pytest" -q -n 2 -m "not torch" --ignore tests/integration/frameworks
}

outcomes=()
failed=0
for version in "$@"; do
    if ! python=$(find_python "$version"); then
        outcomes+=("Python $version: not found, not tested")
    elif echo "Python $version: $python" && test_on "$python" "$version"; then
        outcomes+=("Python $version: passed")
    else
        outcomes+=("Python $version: FAILED")
        failed=1
    fi
done
printf '%s\n' "${outcomes[@]}"
case "${outcomes[*]}" in
    *passed* | *FAILED*) exit $failed ;;
    *) echo "None of the Pythons was found: $*. Install one, or name others: make pythons PYTHONS=3.12" >&2; exit 1 ;;
esac
