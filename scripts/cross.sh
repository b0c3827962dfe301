#!/usr/bin/env bash
# haul-copy on the instruction sets this machine hasn't got: its tests under qemu-user, its instructions
# counted, its routines disassembled.
#
#   scripts/cross.sh             riscv64 and aarch64
#   scripts/cross.sh riscv64     one of them
#   scripts/cross.sh --record    writes the counts to crates/copy/tests/counts instead of comparing with them
#   scripts/cross.sh --setup     only gets what is needed
#
# What it needs, and where it takes that from, in this order:
#
#   a C compiler (for the plugin), for each target a cross gcc and binutils, qemu-user
#                          what is installed; else apt-get, as root
#   a Rust std for each target
#                          the toolchain's own (rustup target add); else, or with HAUL_CROSS_STD=debian, Debian's:
#                          rustc-web of Debian 12 and the std that Debian 13 built from the same source, unpacked
#                          into a folder beside the installed toolchain
#   a qemu-user with MOPS  the installed one if it is 9 or later; else Debian's backports, unpacked
#
# Nothing is skipped: what cannot be had is named, and the script fails. No step waits longer than its bound,
# and none leaves anything outside $HAUL_CROSS (default ~/.cache/haul-cross) but the packages that apt
# installs.
set -euo pipefail
cd "$(dirname "$0")/.."

cache=${HAUL_CROSS:-${XDG_CACHE_HOME:-$HOME/.cache}/haul-cross}
# Bounds in seconds, several times what two busy CPUs took.
max_apt=900 max_rustup=60 max_fetch=300 max_test=1800

record='' setup='' isas=()
for word in "$@"; do
    case $word in
    --record) record=1 ;;
    --setup) setup=1 ;;
    riscv64 | aarch64) isas+=("$word") ;;
    *) echo "cross.sh: no such option or target: $word" >&2; exit 2 ;;
    esac
done
[ ${#isas[@]} -gt 0 ] || isas=(riscv64 aarch64)

step() { printf '\n-- %s (%ds)\n' "$*" "$SECONDS"; }
give_up() { printf 'cross.sh: %s\n' "$@" >&2; exit 1; }
# Runs a command for at most so many seconds; its output is shown only if it fails.
bounded() {
    local seconds=$1 log status=0; shift
    log=$(mktemp)
    timeout --kill-after=10 "$seconds" "$@" >"$log" 2>&1 </dev/null || status=$?
    if [ $status != 0 ]; then
        tail -n 60 "$log" >&2
        [ $status != 124 ] || echo "cross.sh: stopped after $seconds s: $*" >&2
    fi
    rm -f "$log"
    return $status
}
triple() { case $1 in riscv64) echo riscv64gc-unknown-linux-gnu ;; *) echo "$1-unknown-linux-gnu" ;; esac; }
debian_arch() { case $1 in aarch64) echo arm64 ;; *) echo "$1" ;; esac; }
major() { "$1" --version 2>/dev/null | sed -n '1s/.*version \([0-9]*\).*/\1/p'; }
may_apt() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

# ---- packages
# -------------------------------------------------------------------------------------------------------

packages() {
    local want=() isa
    command -v cc >/dev/null || want+=(gcc libc6-dev)
    command -v qemu-riscv64 >/dev/null && command -v qemu-aarch64 >/dev/null || want+=(qemu-user)
    for isa in "${isas[@]}"; do
        command -v "$isa-linux-gnu-gcc" >/dev/null || want+=("gcc-$isa-linux-gnu")
        [ -e "/usr/$isa-linux-gnu/lib/libc.so.6" ] || want+=("libc6-dev-$(debian_arch "$isa")-cross")
    done
    [ ${#want[@]} -gt 0 ] || return 0
    step "apt-get install ${want[*]}"
    may_apt || give_up "not installed, and this user may not install: ${want[*]}" \
        "without them no test runs for: ${isas[*]}"
    refresh
    DEBIAN_FRONTEND=noninteractive bounded $max_apt \
        apt-get -o Acquire::Retries=3 install -y -q --no-install-recommends "${want[@]}" ||
        give_up "apt-get could not install: ${want[*]}"
}

refreshed=''
refresh() {
    [ -z "$refreshed" ] || return 0
    bounded $max_apt apt-get -o Acquire::Retries=3 update -q || give_up "apt-get update failed"
    refreshed=1
}

# Another suite of the mirror this machine already uses, in a state of its own: `suite NAME ARCHITECTURES`
# makes $cache/NAME.conf, for APT_CONFIG.
suite() {
    local name=$1 mirror state=$cache/apt/$1
    mirror=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' |
        awk '$2 == "bookworm" {print $1; exit}')
    [ -n "$mirror" ] || { echo "cross.sh: apt has no source for Debian 12 (bookworm)" >&2; return 1; }
    mkdir -p "$state"/{lists,archives}/partial
    : >"$state/status"
    printf 'deb [arch=%s signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' \
        "$2" "$mirror" "$name" >"$state/sources"
    cat >"$cache/$name.conf" <<CONF
Dir::State "$state"; Dir::State::lists "$state/lists"; Dir::State::status "$state/status"; Dir::Cache "$state";
Dir::Etc::sourcelist "$state/sources"; Dir::Etc::sourceparts "/dev/null"; Dir::Etc::preferencesparts "/dev/null";
APT::Architectures { "amd64"; "arm64"; "riscv64"; }; APT::Sandbox::User "root";
Acquire::Languages "none"; Acquire::Retries "3";
CONF
    APT_CONFIG=$cache/$name.conf bounded $max_apt apt-get update -q
}

# `unpack CONF|- PACKAGE…`: downloads, and unpacks into $cache/root; nothing is installed.
unpack() {
    local conf=$1 folder status=0; shift
    folder=$(mktemp -d "$cache/debs.XXXXXX")
    (
        cd "$folder"
        [ "$conf" = - ] || export APT_CONFIG=$conf
        bounded $max_apt apt-get -q -o APT::Sandbox::User=root -o Acquire::Retries=3 download "$@"
        for deb in *.deb; do dpkg-deb -x "$deb" "$cache/root"; done
    ) || status=$?
    rm -rf "$folder"
    return $status
}

# ---- Rust
# ------------------------------------------------------------------------------------------------------------

# Whether `$1` makes a program for the target `$2`, linked by `$3`.
builds() {
    local status=0 out
    out=$(mktemp -d)
    echo 'fn main() { println!("{}", std::env::args().count()) }' >"$out/main.rs"
    timeout 60 "$1" --target "$2" -C "linker=$3" -o "$out/main" "$out/main.rs" >/dev/null 2>&1 || status=1
    rm -rf "$out"
    return $status
}

all_build() {
    local isa
    for isa in "${isas[@]}"; do builds "$1" "$(triple "$isa")" "$isa-linux-gnu-gcc" || return 1; done
}

rust() {
    if [ -x "$cache/bin/rustc" ] && all_build "$cache/bin/rustc"; then
        export RUSTC=$cache/bin/rustc RUSTDOC=$cache/bin/rustdoc
        return
    fi
    local debian=${HAUL_CROSS_STD:-}
    [ "$debian" != debian ] && all_build rustc && return
    local targets=() isa version source
    for isa in "${isas[@]}"; do targets+=("$(triple "$isa")"); done
    if [ "$debian" != debian ] && command -v rustup >/dev/null; then
        step "rustup target add ${targets[*]}"
        if bounded $max_rustup rustup target add "${targets[@]}" 2>/dev/null && all_build rustc; then return; fi
        echo "no std from rustup"
    fi
    may_apt || give_up "no Rust std for: ${targets[*]}" "rustup has none here, and this user may not take Debian's"
    refresh
    version=$(apt-cache policy rustc-web | awk '/Candidate:/ {print $2}')
    [ -n "$version" ] && [ "$version" != '(none)' ] ||
        give_up "no Rust std for: ${targets[*]}" "rustup has none here, and apt knows no rustc-web (Debian 12 has it)"
    source=${version%%~*}
    step "rustc-web $version, and the std built from $source for ${isas[*]}"
    rm -rf "$cache/root/usr/lib/rustlib" "$cache/root/usr/bin/rustc" "$cache/bin"
    mkdir -p "$cache/root" "$cache/bin"
    local runtime llvm
    runtime=$(apt-cache depends "libstd-rust-web-dev=$version" |
        awk '/Depends: libstd-rust-web-[0-9]/ && !found {print found = $2}')
    llvm=$(apt-cache depends "$runtime=$version" | awk '/Depends: libllvm/ && !found {print found = $2}')
    [ -n "$runtime" ] && [ -n "$llvm" ] || give_up "apt tells no runtime and LLVM that rustc-web $version needs"
    DEBIAN_FRONTEND=noninteractive bounded $max_apt \
        apt-get -o Acquire::Retries=3 install -y -q --no-install-recommends "$llvm" ||
        give_up "apt-get could not install $llvm, which rustc-web needs"
    unpack - "rustc-web=$version" "$runtime=$version" "libstd-rust-web-dev=$version" ||
        give_up "apt-get could not download rustc-web $version"
    local tool
    for tool in rustc rustdoc; do
        printf '#!/bin/sh\nLD_LIBRARY_PATH=%q exec %q "$@"\n' \
            "$cache/root/usr/lib/x86_64-linux-gnu" "$cache/root/usr/bin/$tool" >"$cache/bin/$tool"
        chmod +x "$cache/bin/$tool"
    done
    suite trixie arm64,riscv64 || give_up "apt could not read Debian 13's index for arm64 and riscv64"
    for isa in "${isas[@]}"; do
        local package found
        package=libstd-rust-web-dev:$(debian_arch "$isa")
        found=$(APT_CONFIG=$cache/trixie.conf apt-cache madison "$package" | awk -F' *[|] *' -v source="$source" \
            'index($2, source "~") == 1 || $2 == source {print $2; exit}')
        [ -n "$found" ] || give_up "Debian 13 has no $package built from $source, the source of Debian 12's rustc-web"
        unpack "$cache/trixie.conf" "$package=$found" || give_up "apt-get could not download $package"
    done
    all_build "$cache/bin/rustc" || give_up "$cache/bin/rustc links no program for: ${targets[*]}"
    export RUSTC=$cache/bin/rustc RUSTDOC=$cache/bin/rustdoc
}

# ---- emulators
# -------------------------------------------------------------------------------------------------------

# The emulator that counts (`-plugin`), and the one that has MOPS and answers riscv_hwprobe. Debian 12's qemu
# 7.2 is the one, being linked dynamically; the backported 10 is the other, being linked statically.
declare -A late
declare -A early=(
    [riscv64]="qemu-riscv64 -cpu rv64,v=true,vlen=256,vext_spec=v1.0"
    [aarch64]="qemu-aarch64 -cpu max"
)
emulators() {
    local isa qemu
    for isa in "${isas[@]}"; do
        qemu=qemu-$isa
        "$qemu" -help 2>/dev/null | grep -q -- -plugin ||
            give_up "$qemu takes no -plugin, so nothing can be counted for $isa (Debian 12's qemu-user does)"
        if [ "$(major "$qemu")" -ge 9 ]; then late[$isa]=$qemu; else late[$isa]=$cache/root/usr/bin/$qemu; fi
        [ -n "$(major "${late[$isa]}")" ] || {
            may_apt || give_up "qemu-user is older than 9, so it has no MOPS and no riscv_hwprobe" \
                "and this user may not take another"
            step "qemu-user of bookworm-backports"
            mkdir -p "$cache/root"
            suite bookworm-backports amd64 && unpack "$cache/bookworm-backports.conf" qemu-user ||
                give_up "apt-get could not download qemu-user of bookworm-backports (MOPS, riscv_hwprobe)"
        }
        [ "$(major "${late[$isa]}")" -ge 9 ] || give_up "${late[$isa]} is older than 9: no MOPS, no riscv_hwprobe"
    done
    cc -O2 -Wall -Wextra -Werror -shared -fPIC -o "$work/libinsns.so" scripts/insns.c
}

# ---- the tests
# -------------------------------------------------------------------------------------------------------

# The machines: a name, the emulator with its options, what of the features in crates/copy/tests/expected it
# has, and the stride of the suite (every so many lengths and offsets; with all of them an emulator takes half
# an hour).
machines() {
    case $1 in
    riscv64)
        echo "rv64gcv|${early[riscv64]}|v|5"
        echo "rv64gc|qemu-riscv64 -cpu rv64,v=false||23"
        # The shortest vectors, and a kernel's riscv_hwprobe, which the two above do not know.
        echo "rv64gcv-hwprobe|${late[riscv64]} -cpu max,vlen=128|v|23"
        ;;
    aarch64)
        echo "armv8.8-mops|${late[aarch64]} -cpu max|mops|5"
        echo "armv8.0|qemu-aarch64 -cpu cortex-a57||23"
        ;;
    esac
}

# `cross_cargo ISA "EMULATOR AND OPTIONS" CARGO-ARGUMENTS…`
cross_cargo() {
    local isa=$1 emulator=$2 target variable root=/usr/$1-linux-gnu; shift 2
    target=$(triple "$isa")
    variable=CARGO_TARGET_$(tr a-z- A-Z_ <<<"$target")
    # With this architecture's own libc installed too (dpkg --add-architecture), its dynamic linker would be
    # given the cross one's libc, and spins for ever.
    case $isa in
    riscv64) [ ! -e /lib/ld-linux-riscv64-lp64d.so.1 ] || root=/ ;;
    aarch64) [ ! -e /lib/ld-linux-aarch64.so.1 ] || root=/ ;;
    esac
    # A backtrace takes seconds under emulation. Optimised, because the tests check more bytes than they copy.
    env RUST_BACKTRACE=0 CARGO_PROFILE_DEV_OPT_LEVEL=2 CARGO_PROFILE_DEV_DEBUG=none \
        "${variable}_LINKER=$isa-linux-gnu-gcc" "${variable}_RUNNER=$emulator -L $root" \
        "HAUL_COPY_EMULATOR=$emulator -L $root" timeout --kill-after=10 $max_test \
        cargo "$1" --locked -p haul-copy --all-features --target "$target" "${@:2}" </dev/null
}

# What no emulator here can do: they place mappings themselves, and none of huge pages; and they end a call that waits
# with EINTR at every SIGSEGV, whatever the guest's handler asked for. These run natively in step `test`.
not_emulated=(a_mapping_of_huge_pages an_interrupted_call_goes_on_where_the_earlier_handler_wants_it)

# Everything there is on the first machine, the suite of the copies on the others (the checksums want no
# feature that they differ in); and what ran is what should have.
tests() {
    local isa=$1 name emulator features stride what=() output=$work/output
    while IFS='|' read -r name emulator features stride; do
        step "$isa: tests on $name"
        if [ ${#what[@]} = 0 ]; then what=(--tests); else what=(--test suite); fi
        HAUL_COPY_STRIDE=$stride cross_cargo "$isa" "$emulator" test "${what[@]}" -- \
            --nocapture "${not_emulated[@]/#/--skip=}" >"$output" 2>&1 || {
            tail -n 100 "$output" >&2
            give_up "the tests failed on $name ($emulator)"
        }
        grep -E '^(test result|checksum routines that ran)' "$output"
        same "$isa" "$name" "$features" "$output"
    done < <(machines "$isa")
    echo "not emulated: ${not_emulated[*]}"
    step "$isa: documentation's examples"
    cross_cargo "$isa" "$(machines "$isa" | head -n 1 | cut -d'|' -f2)" test --doc 2>&1 | grep '^test result'
}

# `same ISA NAME "FEATURES" FILE`: every part of the suite in FILE ran exactly the routines that such a
# machine should have.
same() {
    local isa=$1 name=$2 features=$3 file=$4 lists=crates/copy/tests/expected expected part
    expected=$(awk -v features="$features" 'BEGIN {split(features, list, " "); for (i in list) has[list[i]] = 1}
        !/^#/ && NF {for (i = 2; i <= NF; i++) if (!($i in has)) next; print $1}' "$lists/$isa" | sort)
    while read -r part; do
        # Tests print at the same time: a line may begin behind another's.
        diff <(echo "$expected") <(grep -oE "ran $part [a-z0-9-]+" "$file" | awk '{print $3}' | sort) ||
            give_up "the part $part of the suite did not run on $name what $lists/$isa says (< should, > ran)"
    done <"$lists/parts"
    echo "$name: $(wc -l <<<"$expected") routines in $(wc -l <"$lists/parts") parts: $(xargs <<<"$expected")"
}

# Every count of the recorded tables, and the bounds. One test a process: the plugin's file is one process's.
counts() {
    local isa=$1 tests=(counts_are_as_recorded) test
    [ "$isa" != riscv64 ] || tests+=(merging_executes_at_most_a_fifth_of_the_byte_loop)
    export HAUL_COPY_COUNTS=$work/counts
    [ -z "$record" ] || export HAUL_COPY_COUNTS_RECORD=$PWD/crates/copy/tests/counts
    for test in "${tests[@]}"; do
        step "$isa: $test"
        cross_cargo "$isa" "${early[$isa]} -plugin $work/libinsns.so,out=$HAUL_COPY_COUNTS" \
            test --quiet --test counts -- --ignored --exact --nocapture "$test"
    done
    unset HAUL_COPY_COUNTS HAUL_COPY_COUNTS_RECORD
}

# A routine that is named for an instruction contains it, and calls nothing. Those in Rust may call what
# panics, but no memcpy that the compiler made of a loop.
disassembly() {
    local isa=$1 binaries listing=$work/listing function wanted word body calls checked=0
    step "$isa: disassembly"
    mapfile -t binaries < <(cross_cargo "$isa" true test --test suite --test checksum --no-run 2>&1 |
        sed -n 's/^ *Executable .*(\(.*\))$/\1/p')
    "$isa-linux-gnu-objdump" -d -C --no-show-raw-insn "${binaries[@]}" >"$listing"
    while read -r function wanted; do
        body=$(awk -v name="<haul_copy::$function>:" 'index($0, name) {on = 1} on && /^$/ {exit} on' "$listing")
        [ -n "$body" ] || give_up "no function haul_copy::$function in ${binaries[*]}"
        for word in $wanted; do
            grep -qP "\t(?:$word)" <<<"$body" || give_up "haul_copy::$function has no \`$word\`:" "$body"
        done
        # Ends that are jumped to are fine; calls are not.
        calls='\t(bl|blr|jal|jalr)\t|mem(cpy|move|set)'
        [[ $function != *::portable::* ]] || calls='mem(cpy|move|set)'
        ! grep -P "$calls" <<<"$body" || give_up "haul_copy::$function calls a function"
        checked=$((checked + 1))
    done < <(instructions "$isa")
    echo "$checked functions contain their instructions, and call nothing"
}

# Lines of a function and its instructions, as patterns. Those of vectors by their codes, too: an older
# objdump doesn't know them in a program that is made for cores without.
instructions() {
    local portable="arch::portable::bytes
arch::portable::words
arch::portable::words_shift"
    case $1 in
    riscv64) echo "$portable
arch::machine::scalar::lb lb sb
arch::machine::scalar::ld ld sd
arch::machine::scalar::ld_shift ld sd sll srl or
arch::machine::scalar::ld_unaligned ld sd lh lw
arch::machine::vector::rvv vsetvli|\.4byte\t0xc3672d7 vle8.v|\.4byte\t0x2058007 vse8.v|\.4byte\t0x2050027
checksum::machine::sum ld sltu
checksum::machine::copy ld sd sll srl sltu" ;;
    aarch64) echo "$portable
arch::machine::pairs::ldrb ldrb strb
arch::machine::pairs::ldp ldp stp
arch::machine::pairs::ldp_q ldp stp
arch::machine::mops::mops cpyfp cpyfm cpyfe
checksum::machine::adcs_sum ldp adcs
checksum::machine::adcs_copy ldp stp adcs
checksum::machine::neon_sum ldp uadalp
checksum::machine::neon_copy ldp stp uadalp" ;;
    esac
}

mkdir -p "$cache"
# What this run alone uses: two may run at once.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
packages
rust
emulators
step "$("${RUSTC:-rustc}" --version); $(cargo --version); qemu $(major "qemu-${isas[0]}") counts," \
    "$(major "${late[${isas[0]}]}") has MOPS and riscv_hwprobe"
[ -z "$setup" ] || exit 0
for isa in "${isas[@]}"; do
    step "$isa: build"
    bounded $max_fetch cargo fetch --locked --target "$(triple "$isa")" || give_up "cargo fetch failed"
    cross_cargo "$isa" true test --no-run
    counts "$isa"
    disassembly "$isa"
    tests "$isa"
done
step "${isas[*]}: all passed"
