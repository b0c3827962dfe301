//! The kernel's symbols: `/proc/kallsyms`, with modules and BPF programs.
//!
//! Somebody without `CAP_SYSLOG` reads zeroes for addresses, and at `kptr_restrict` 2 everybody does: then there are no names, which
//! is told. The list has no sizes, so an address belongs to the nearest symbol below it; where several begin at one address, the choice is
//! that of `perf` (`choose_best_symbol` in tools/perf/util/symbol.c).

use std::fs::File;
use std::io::{BufRead, BufReader};

use super::Found;

const FILE: &str = "/proc/kallsyms";

/// No function is longer; an address further away from a symbol is of something that has none.
const LONGEST: u64 = 1 << 20;

/// The symbols, by address.
#[derive(Debug, Default)]
pub(crate) struct KernelSymbols {
    symbols: Vec<Symbol>,
    names: String,
    modules: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
struct Symbol {
    address: u64,
    name: usize,
    length: u16,
    module: u16,
    rank: Rank,
}

/// Among symbols of one address the greatest is taken: not weak, global, with few underscores before it, with a long name.
type Rank = (bool, bool, std::cmp::Reverse<u16>, u16);

/// What the kernel is called as a module.
pub(crate) const KERNEL: &str = "[kernel]";

impl KernelSymbols {
    /// Those of the running kernel, or why there are none.
    pub(crate) fn host() -> Result<Self, String> {
        let file = File::open(FILE).map_err(|error| format!("{FILE} cannot be read: {error}"))?;
        Self::parse(BufReader::with_capacity(1 << 16, file))
    }

    /// Whether this user sees addresses, by the first lines.
    pub(crate) fn visible() -> bool {
        let lines =
            File::open(FILE).map(|file| BufReader::new(file).lines().map_while(Result::ok).take(4096));
        lines.is_ok_and(|mut lines| {
            lines.any(|line| line.trim_start_matches('0').starts_with(|first: char| first != ' '))
        })
    }

    pub(crate) fn parse(mut lines: impl BufRead) -> Result<Self, String> {
        let mut all = Self { modules: vec![KERNEL.to_owned()], ..Self::default() };
        let (mut line, mut seen) = (String::new(), 0_u64);
        loop {
            line.clear();
            if lines.read_line(&mut line).map_err(|error| format!("{FILE} cannot be read: {error}"))? == 0 {
                break;
            }
            seen += 1;
            all.take(&line);
        }
        if all.symbols.is_empty() {
            return Err(if seen == 0 {
                format!("{FILE} is empty: this kernel was built without CONFIG_KALLSYMS")
            } else {
                format!("the addresses in {FILE} are hidden (kernel.kptr_restrict, or no CAP_SYSLOG)")
            });
        }
        all.symbols.sort_by_key(|symbol| (symbol.address, symbol.rank));
        // Of an address the last, which ranks highest, is kept.
        all.symbols.reverse();
        all.symbols.dedup_by_key(|symbol| symbol.address);
        all.symbols.reverse();
        Ok(all)
    }

    /// `ffffffff81000000 T _text`, or with a module: `ffffffffc0201000 t bbr_main [tcp_bbr]`, after a tab.
    fn take(&mut self, line: &str) -> Option<()> {
        let mut fields = line.split_ascii_whitespace();
        let address = u64::from_str_radix(fields.next()?, 16).ok().filter(|&address| address != 0)?;
        let kind = fields.next()?;
        let name = fields.next()?;
        let module = fields.next().map(|module| module.trim_matches(['[', ']']));
        // Code only; `$x` and `$d` are marks of assemblers, the others padding before functions.
        let code = matches!(kind, "t" | "T" | "w" | "W");
        if !code || name.starts_with(['$', '.']) || name.starts_with("__pfx_") || name.starts_with("__cfi_") {
            return None;
        }
        let underscores = name.bytes().take_while(|&byte| byte == b'_').count();
        let length = u16::try_from(name.len()).ok()?;
        let rank = (
            !kind.eq_ignore_ascii_case("w"),
            kind == "T",
            std::cmp::Reverse(u16::try_from(underscores).ok()?),
            length,
        );
        let module = module.map_or(Some(0), |module| self.module(module))?;
        self.symbols.push(Symbol { address, name: self.names.len(), length, module, rank });
        self.names.push_str(name);
        Some(())
    }

    fn module(&mut self, name: &str) -> Option<u16> {
        // They come one after another.
        let at = self.modules.iter().rposition(|known| known == name).unwrap_or_else(|| {
            self.modules.push(name.to_owned());
            self.modules.len() - 1
        });
        u16::try_from(at).ok()
    }

    /// The symbol an address is in.
    pub(crate) fn find(&self, address: u64) -> Option<Found> {
        let after = self.symbols.partition_point(|symbol| symbol.address <= address);
        let symbol = self.symbols.get(after.checked_sub(1)?)?;
        (address - symbol.address < LONGEST).then_some(())?;
        let name = self.names.get(symbol.name..symbol.name + usize::from(symbol.length))?;
        let module = self.modules.get(usize::from(symbol.module))?;
        Some(Found { symbol: Some(name.to_owned()), module: module.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "ffffffff81000000 T srso_alias_untrain_ret\n\
        ffffffff81000000 T _stext\n\
        ffffffff81000000 T _text\n\
        ffffffff81000100 t __pfx_do_one\n\
        ffffffff81000110 t do_one\n\
        ffffffff81000200 W __weak_one\n\
        ffffffff81000200 t strong_local\n\
        ffffffff81000200 T __memcpy\n\
        ffffffff81000200 T memcpy\n\
        ffffffff81000300 D some_data\n\
        ffffffff81000400 t $x\n\
        ffffffffc0201000 t bbr_main\t[tcp_bbr]\n\
        ffffffffc0202000 t bpf_prog_6deef7357e7b4530\t[bpf]\n";

    fn find(symbols: &KernelSymbols, address: u64) -> Option<(String, String)> {
        symbols.find(address).map(|found| (found.symbol.expect("always"), found.module))
    }

    #[test]
    fn an_address_is_of_the_symbol_below_it_and_of_the_one_perf_would_choose() {
        let symbols = KernelSymbols::parse(TEXT.as_bytes()).expect("symbols");
        for (address, symbol, module) in [
            (0xffff_ffff_8100_0000, "srso_alias_untrain_ret", "[kernel]"),
            (0xffff_ffff_8100_0110, "do_one", "[kernel]"),
            (0xffff_ffff_8100_01ff, "do_one", "[kernel]"),
            (0xffff_ffff_8100_0234, "memcpy", "[kernel]"),
            (0xffff_ffff_8100_0408, "memcpy", "[kernel]"),
            (0xffff_ffff_c020_1fff, "bbr_main", "tcp_bbr"),
            (0xffff_ffff_c020_2001, "bpf_prog_6deef7357e7b4530", "bpf"),
        ] {
            assert_eq!(find(&symbols, address), Some((symbol.into(), module.into())), "{address:x}");
        }
        assert_eq!(find(&symbols, 0x1000), None, "below all");
        assert_eq!(find(&symbols, 0xffff_ffff_b000_0000), None, "in the gap before the modules");
    }

    #[test]
    fn zeroed_addresses_and_an_empty_list_are_told_apart() {
        let zeroed =
            "0000000000000000 T _text\n0000000000000000 t do_one\n0000000000000000 t bbr_main\t[tcp_bbr]\n";
        let error = KernelSymbols::parse(zeroed.as_bytes()).expect_err("zeroes");
        assert!(error.contains("are hidden (kernel.kptr_restrict"), "{error}");
        let error = KernelSymbols::parse(&b""[..]).expect_err("nothing");
        assert!(error.contains("CONFIG_KALLSYMS"), "{error}");
        // Nonsense is no symbol, and no reason to fail.
        assert!(KernelSymbols::parse(&b"\n\xc3\xa4 b\nffffffff81000000 T ok\nzz T x\n"[..]).is_ok());
    }

    #[test]
    fn this_kernels_list_is_read() {
        let symbols = KernelSymbols::host();
        assert_eq!(symbols.is_ok(), KernelSymbols::visible());
        if let Ok(symbols) = symbols {
            let lines = std::fs::read_to_string(FILE).expect("kallsyms");
            let line =
                lines.lines().find(|line| line.ends_with(" do_exit")).expect("every kernel has do_exit");
            let address = u64::from_str_radix(line.split(' ').next().expect("an address"), 16).expect("hex");
            assert_eq!(find(&symbols, address + 4), Some(("do_exit".into(), KERNEL.into())));
        }
    }
}
