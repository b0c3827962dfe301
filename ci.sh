#!/usr/bin/env bash
# Everything that must hold before a commit is shared; CI runs this and nothing else.
#
#   ./ci.sh            all steps
#   ./ci.sh STEP…      some of: setup fmt lint layers test copy nostd miri cross user fuzz doc deny bench
#
# What the tests need beyond a Rust toolchain is installed where this may be done (root, apt-get); where it may not,
# the tests that want it fail by name. Nothing is skipped in silence.
set -euo pipefail
cd "$(dirname "$0")"
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}

setup() {
    # iproute2 shapes links and makes the named namespaces of the tests, perf is what counters and profiles are compared with; the
    # others are what bench/ compares with.
    local want=() package tool
    for package in iproute2:tc linux-perf:perf iperf3:iperf3 iperf:iperf nuttcp:nuttcp qperf:qperf sockperf:sockperf; do
        tool=${package#*:}
        command -v "$tool" >/dev/null || [ -x "/usr/sbin/$tool" ] || want+=("${package%:*}")
    done
    command -v cc >/dev/null || want+=(gcc libc6-dev)
    if [ ${#want[@]} -gt 0 ]; then
        if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
            apt-get update -qq
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${want[@]}" >/dev/null
        else
            echo "not installed, and this user may not install: ${want[*]}" >&2
        fi
    fi
    cargo +nightly miri --version >/dev/null 2>&1 || rustup component add --toolchain nightly miri || true
    command -v cargo-deny >/dev/null || cargo install --locked --quiet cargo-deny
}

fmt() { cargo fmt --all --check; }
lint() { cargo clippy --workspace --all-targets --locked -- -D warnings; }
layers() { cargo test --quiet --locked -p haul --test layers; }
doc() { RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet; }
deny() { cargo deny --log-level error check bans licenses sources; }
fuzz() { cargo check --quiet --manifest-path fuzz/Cargo.toml; }

test() { cargo test --workspace --locked; }

# The routines that the suite of haul-copy ran, part by part, against those this CPU should have. The list is by hand
# and the flags are the kernel's, so that a routine which is silently left out is missed.
copy() {
    local list log expected part
    list=crates/copy/tests/expected/$(uname -m)
    log=$(mktemp)
    cargo test --locked -p haul-copy --test suite -- --nocapture >"$log" 2>&1 || { cat "$log"; return 1; }
    expected=$(awk 'NR == FNR { if (/^(flags|Features|isa)/) for (i = 1; i <= NF; i++) has[$i] = 1; next }
        !/^#/ && NF { for (i = 2; i <= NF; i++) if (!($i in has)) next; print $1 }' /proc/cpuinfo "$list" | sort)
    while read -r part; do
        diff <(echo "$expected") <(grep -oE "ran $part [a-z0-9-]+" "$log" | awk '{ print $3 }' | sort) ||
            { echo "copy: the part '$part' of the suite did not run the routines of $list" >&2; return 1; }
    done <crates/copy/tests/expected/parts
    echo "$(wc -l <<<"$expected") routines in $(wc -l <crates/copy/tests/expected/parts) parts: $(xargs <<<"$expected")"
    rm -f "$log"
}

# haul-copy on riscv64 and aarch64, emulated: everything in the script, which names what it cannot have.
cross() { scripts/cross.sh; }

# haul-copy wants neither std nor any crate: it is compiled beside a panic handler, of which there may be only one.
nostd() {
    local where=${CARGO_TARGET_DIR:-target}/nostd
    [ "$(cargo tree --locked -p haul-copy --edges normal --prefix none | wc -l)" = 1 ]
    cargo build --quiet --locked -p haul-copy --lib --target-dir "$where"
    rustc --edition 2024 --crate-type cdylib -C panic=abort -C link-arg=-nostdlib -L "$where/debug/deps" \
        --extern haul_copy="$where/debug/libhaul_copy.rlib" -o "$where/check.so" crates/copy/no-std/check.rs
    echo "haul-copy: no std, no dependencies"
}

# The portable routines under an interpreter that checks every access; it knows no assembly, so no others.
miri() {
    if ! cargo +nightly miri --version >/dev/null 2>&1; then
        echo "miri: cargo +nightly miri is not installed (rustup component add --toolchain nightly miri)" >&2
        return 1
    fi
    MIRIFLAGS=-Zmiri-strict-provenance cargo +nightly miri test --quiet --locked -p haul-copy --test portable
}

# The same binary as an ordinary user: the lab in a user namespace, nothing privileged anywhere.
user() {
    cargo build --quiet --locked -p haul
    if [ "$(id -u)" = 0 ]; then
        local home binary
        home=$(mktemp -d)
        binary=$home/haul
        cp target/debug/haul "$binary"
        chown -R 65534:65534 "$home"
        chmod 755 "$home"
        setpriv --reuid 65534 --regid 65534 --clear-groups env -i HOME="$home" PATH=/nonexistent \
            "$binary" stream lab --time 300ms --warmup 100ms --cc reno --format json >"$home/run.json"
        grep -q '"status": *"complete"' "$home/run.json"
        rm -rf "$home"
        echo "the lab ran as an ordinary user"
    fi
}

# The benchmark as a test of itself: every row of every comparison once, for a moment, its figures not judged (a shared
# machine is too noisy for that). A row that does not run fails it by name.
bench() {
    cargo build --quiet --release --locked -p haul -p haul-bench
    target/release/haul-bench --quick
}

steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(setup fmt lint layers test copy nostd miri cross user fuzz doc deny bench)
for step in "${steps[@]}"; do
    printf '\n== %s\n' "$step"
    "$step"
done
printf '\nci: all of %s passed\n' "${steps[*]}"
