#!/bin/sh
# Everything one does with this tree, one word each: ./do TASK. Alone it lists the tasks.
set -eu
cd "$(dirname "$0")"

# The one list of Debian and Ubuntu packages. `needed` must be there; `wanted` is used where the distribution has it.
needed="gcc libc6-dev meson ninja-build pkgconf libjansson-dev libinih-dev libpcre2-dev zlib1g-dev libzstd-dev
    libxxhash-dev libssl-dev libcmocka-dev"
wanted="libdnnl-dev libnats-dev nats-server"

say() { printf '%s\n' "$*" >&2; }

installed() { dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q '^install ok installed'; }

missing_of() {
    for package in "$@"; do
        installed "$package" || printf ' %s' "$package"
    done
}

# install_missing PACKAGE...: installs what is not there, or prints the line to type and stops.
install_missing() {
    if ! command -v dpkg-query >/dev/null 2>&1; then
        command -v meson >/dev/null 2>&1 || { say "meson is missing; install what README.md names"; exit 1; }
        return 0
    fi
    missing=$(missing_of "$@")
    [ -n "$missing" ] || return 0
    if [ "$(id -u)" -eq 0 ]; then
        as_root=""
    elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
        as_root="sudo -n"
    else
        say "Some packages are missing. Install them, then run ./do $task again:"
        say "    sudo apt-get update && sudo apt-get install -y --no-install-recommends$missing"
        exit 1
    fi
    say "installing:$missing"
    # Old lists may still do; the installation below has the last word.
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq >&2 || say "apt-get update failed; going on"
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >&2
}

# Optional packages never stop anything.
install_wanted() {
    command -v apt-cache >/dev/null 2>&1 || return 0
    for package in $wanted; do
        if ! installed "$package" && apt-cache show "$package" >/dev/null 2>&1; then
            (install_missing "$package") || say "going on without $package"
        fi
    done
}

packages() {
    install_missing $needed
    install_wanted
}

# compile FOLDER [MESON OPTION]...: set up once, then build.
compile() {
    folder=$1
    shift
    if [ ! -f "$folder/build.ninja" ]; then
        rm -rf "$folder" # left by a configuration that failed
        meson setup "$folder" "$@" >&2
    fi
    ninja -C "$folder" >&2
}

# run_tests FOLDER [SUITE]...: without suites all but the long ones.
test_args=""
run_tests() {
    folder=$1 suites="--no-suite long"
    shift
    [ $# -eq 0 ] || suites=""
    for suite in "$@"; do suites="$suites --suite $suite"; done
    meson test -C "$folder" --no-rebuild --print-errorlogs $suites $test_args
}

# sanitized FOLDER SANITIZERS [SUITE]...: code is ten times slower, so tests get more time and do fewer seeded schedules.
sanitized() {
    folder=$1 sanitizers=$2 libraries=""
    shift 2
    # The thread sanitizer sees races in a library that was not built for it.
    [ "$sanitizers" != thread ] || libraries="-Donednn=disabled -Dopenblas=disabled"
    # Instrumented code makes gcc warn of what is not there; the ordinary build holds the warnings.
    compile "$folder" "-Db_sanitize=$sanitizers" -Db_lundef=false -Doptimization=1 -Dwerror=false $libraries
    export ASAN_OPTIONS="${ASAN_OPTIONS:-halt_on_error=1:abort_on_error=1}"
    export UBSAN_OPTIONS="${UBSAN_OPTIONS:-halt_on_error=1:abort_on_error=1:print_stacktrace=1}"
    export TSAN_OPTIONS="${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1}"
    export DLC_SCHEDULES="${DLC_SCHEDULES:-1000}"
    test_args="--timeout-multiplier 4" # more for every test than an ordinary build gets
    run_tests "$folder" "$@"
}

task_build() { compile build && say "built: build/diloco"; }

task_demo() {
    packages
    compile build
    exec sh tools/demo.sh "$@"
}

# A newer compiler's new warning must not keep a person from the program; in CI it is an error.
task_test() {
    packages
    compile build "-Dwerror=$([ -n "${CI:-}" ] && echo true || echo false)"
    run_tests build "$@"
}

task_asan() { sanitized build-asan address "$@"; }
task_ubsan() { sanitized build-ubsan undefined "$@"; }
task_sanitize() { sanitized build-sanitize address,undefined "$@"; }
task_tsan() { sanitized build-tsan thread "$@"; }

# Each target runs FUZZ_SECONDS (20) from its seeds; what it finds is left in build-fuzz/findings.
task_fuzz() {
    packages
    command -v clang >/dev/null 2>&1 || install_missing clang
    version=$(clang -dumpversion | cut -d. -f1)
    ! command -v dpkg-query >/dev/null 2>&1 || install_missing "libclang-rt-$version-dev"
    [ -f build-fuzz/build.ninja ] || CC=clang meson setup build-fuzz -Dfuzz=enabled -Db_sanitize=address,undefined \
        -Db_lundef=false -Doptimization=1 -Dwerror=false -Dtests=disabled >&2
    ninja -C build-fuzz >&2
    mkdir -p build-fuzz/findings
    [ $# -gt 0 ] || set -- $(sed -n "s/^ *\['\([a-z0-9_]*\)', '[a-z0-9_]*\.c'.*/\1/p" fuzz/meson.build)
    for target in "$@"; do
        say "fuzzing $target for ${FUZZ_SECONDS:-20} s"
        mkdir -p "build-fuzz/work/$target"
        UBSAN_OPTIONS=halt_on_error=1 "build-fuzz/fuzz/fuzz_$target" -max_total_time="${FUZZ_SECONDS:-20}" \
            -verbosity=0 -max_len=8192 -timeout=20 -artifact_prefix="build-fuzz/findings/$target-" \
            "build-fuzz/work/$target" "fuzz/corpus/$target"
    done
}

c_files() { git ls-files '*.c' '*.h'; }

task_format() {
    command -v clang-format >/dev/null 2>&1 || install_missing clang-format
    c_files | xargs clang-format -i
}

task_lint() {
    command -v clang-tidy >/dev/null 2>&1 || install_missing clang-tidy
    compile build
    tools/check-includes
    ! command -v shellcheck >/dev/null 2>&1 || shellcheck -e SC2086 do tools/check-* .ci/run
    git ls-files 'src/*.c' | grep -v _test.c | xargs clang-tidy --quiet -p build
}

task_chaos() {
    packages
    compile build
    DILOCO="$PWD/build/diloco" exec build/tests/chaos/chaos "$@"
}

task_bench() { compile build && build/diloco bench "$@"; }

# PyTorch is for comparison only and lives in build-peers, unless PYTHON names an interpreter that has it.
peers_python() {
    [ -z "${PYTHON:-}" ] || { echo "$PYTHON"; return; }
    if ! build-peers/venv/bin/python -c 'import torch' 2>/dev/null; then
        command -v python3 >/dev/null 2>&1 || install_missing python3
        python3 -c 'import ensurepip' 2>/dev/null || install_missing python3-venv
        python3 -m venv build-peers/venv >&2
        build-peers/venv/bin/python -m pip install --quiet 'torch==2.13.0' numpy >&2
    fi
    echo build-peers/venv/bin/python
}

task_bench_peers() {
    compile build
    command -v g++ >/dev/null 2>&1 || install_missing g++ # torch.compile calls it
    python=$(peers_python)
    exec "$python" bench/peers/main.py "$@"
}

task_docs() {
    compile build
    build/diloco help --markdown >docs/cli.md.new
    mv docs/cli.md.new docs/cli.md
    say "written: docs/cli.md"
}

list() {
    cat <<'EOF'
./do TASK

  demo               train a model on English text with four islands, some minutes; TEXT=folder takes your own text
  test [SUITE...]    build and test; suites: base net data kernels model outer ckpt config plan link cli e2e chaos fuzz, and long
  build              build/diloco
  asan, ubsan, tsan [SUITE...]   the tests under a sanitizer; sanitize: address and undefined together
  fuzz [TARGET...]   every decoder for FUZZ_SECONDS (20) with clang's fuzzer
  format, lint       clang-format; clang-tidy and the arrows between folders
  chaos NAME         a fault storm with real processes; alone it lists them; tests/chaos/README.md
  bench [FLAG...]    diloco bench: this machine's peaks, and how much of them our code gets
  bench-peers        the same shapes trained by PyTorch, in turns with ours, and ratios; bench/README.md
  docs               docs/cli.md, from the tables of verbs and keys

demo and test install what is missing (Debian, Ubuntu) first.
EOF
}

task=${1:-}
case $task in
"" | help | --help | -h) list ;;
bench-peers)
    shift
    task_bench_peers "$@"
    ;;
build | demo | test | asan | ubsan | sanitize | tsan | fuzz | format | lint | bench | chaos | docs)
    shift
    "task_$task" "$@"
    ;;
packages) packages ;;
*)
    say "there is no task '$task'"
    list >&2
    exit 2
    ;;
esac
