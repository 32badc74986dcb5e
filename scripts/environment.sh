# Sourced by the other scripts: pick a Python, make .venv, install what is asked for.
# Idempotent: nothing is done when pyproject.toml, the extras and the Python are as last time.

cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() {
    printf 'error: %s\n' "$1" >&2
    exit 1
}

# The newest Python of 3.11 to 3.13 that runs; a shim or a broken link on PATH does not count.
find_python() {
    local version candidate
    for version in 3.13 3.12 3.11; do
        candidate=$(command -v "python$version") || continue
        if "$candidate" -c 'pass' >/dev/null 2>&1; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    for candidate in python3 python; do
        if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
            >/dev/null 2>&1; then
            command -v "$candidate"
            return
        fi
    done
    die "Python 3.11, 3.12 or 3.13 is needed and none was found on PATH.
  Debian, Ubuntu: apt-get install python3.11 python3.11-venv    macOS: brew install python@3.13"
}

# Usage: ensure_environment [EXTRA ...]    What was installed before stays.
ensure_environment() {
    local python version stamp=.venv/.stele-environment state extra extras missing=
    python=$(find_python) || exit 1
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 ||
        die "$python has no venv module. Debian, Ubuntu: apt-get install python$version-venv"
    # First line: what the environment was made from. Second: the extras in it.
    state="$version $(cksum <pyproject.toml)"
    extras=
    if [ -f "$stamp" ] && [ "$(sed -n 1p "$stamp")" = "$state" ]; then
        extras=$(sed -n 2p "$stamp")
    else
        missing=yes
    fi
    for extra in "$@"; do
        case ",$extras," in
        *",$extra,"*) ;;
        *)
            extras=${extras:+$extras,}$extra
            missing=yes
            ;;
        esac
    done
    if [ -z "$missing" ]; then
        ensure_native
        return
    fi
    echo "Setting up .venv with Python $version (the first time takes a minute or two) ..."
    rm -f "$stamp"
    if ! [ -x .venv/bin/python ] ||
        [ "$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')" != "$version" ]; then
        rm -rf .venv
        "$python" -m venv .venv || die "could not make a virtual environment in .venv"
    fi
    .venv/bin/python -m pip install --quiet --disable-pip-version-check \
        --editable ".${extras:+[$extras]}" ||
        die "pip could not install the packages: is the package index reachable?"
    printf '%s\n%s\n' "$state" "$extras" >"$stamp"
    ensure_native
}

# The compiled module for records (native/), where cargo is found. Without it Python does its work, so a
# build that fails is told once, and tried again when the sources change.
ensure_native() {
    local stamp=.venv/.stele-native state output
    command -v cargo >/dev/null || return 0
    state=$(cat native/pyproject.toml native/Cargo.* native/src/*.rs | cksum)
    [ "$(cat "$stamp" 2>/dev/null)" != "$state" ] || return 0
    echo "Building the compiled module for records with cargo (half a minute) ..."
    output=$(.venv/bin/python -m pip install --quiet --disable-pip-version-check ./native 2>&1) ||
        printf 'warning: the compiled module was not built, and Python does its work: %s\n' \
            "$(printf '%s\n' "$output" | grep -i error | tail -n 1)" >&2
    printf '%s\n' "$state" >"$stamp"
}

# Java's major version, or nothing where there is no Java.
java_major() {
    local java=${JAVA_HOME:+$JAVA_HOME/bin/}java
    command -v "$java" >/dev/null || return 0
    "$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1
}

has_java_17() {
    local major
    major=$(java_major)
    [ -n "$major" ] && [ "$major" -ge 17 ]
}
