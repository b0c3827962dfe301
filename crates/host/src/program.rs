//! Which code of this program an address belongs to, and a hash of it: what ran, not what was written.
//!
//! A compiler may merge three block copies into a string instruction, and a C library chooses a variant when it is loaded. So a
//! routine's identity is taken from what is in memory: the file it was mapped from (`/proc/self/maps`), the place in it, and,
//! where the file still has its table of symbols (ELF, `elf(5)`), the symbol and its bytes. The hash is FNV-1a over exactly those
//! bytes of the file; a jump out of the function is in it as a distance, so another link of the same source may differ.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};

/// What an address is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Code {
    /// The name of the file it was mapped from, without its folder.
    pub file: String,
    /// Where in the file.
    pub offset: u64,
    /// The symbol, as the linker knows it, and a hash of its bytes.
    pub symbol: Option<Symbol>,
}

/// A function of a file that has a table of symbols.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// Its name, mangled.
    pub name: String,
    /// How many bytes it has.
    pub bytes: u64,
    /// FNV-1a, 64 bits, of those bytes in the file.
    pub hash: u64,
}

/// The most of a file's tables that is read: more than any program has here, less than memory.
const MOST: u64 = 256 << 20;

/// What is at `address` of this process; `None` where nothing from a file is.
#[must_use]
pub fn code_at(address: usize) -> Option<Code> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let (path, offset) = maps.lines().find_map(|line| place(line, address as u64))?;
    let file = path.rsplit('/').next().unwrap_or(path).to_owned();
    let symbol = File::open(path).ok().and_then(|mut file| symbol_at(&mut file, offset).ok().flatten());
    Some(Code { file, offset, symbol })
}

/// A line of `proc_pid_maps(5)` that `address` is in: its path, and where in the file the address is.
fn place(line: &str, address: u64) -> Option<(&str, u64)> {
    let mut words = line.splitn(6, ' ');
    let (low, high) = words.next()?.split_once('-')?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let (low, high, offset) = (hex(low)?, hex(high)?, hex(words.nth(1)?)?);
    let path = words.nth(2)?.trim_start();
    ((low..high).contains(&address) && path.starts_with('/')).then(|| (path, address - low + offset))
}

/// Eight bytes at most, little-endian: every ELF here is of the machine it runs on.
fn word(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let mut whole = [0; 8];
    whole[..size].copy_from_slice(bytes.get(at..at.checked_add(size)?)?);
    Some(u64::from_le_bytes(whole))
}

fn part(file: &mut File, at: u64, length: u64) -> io::Result<Vec<u8>> {
    if length > MOST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    file.seek(SeekFrom::Start(at))?;
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The function that byte `offset` of an ELF file for 64 bits is in.
fn symbol_at(file: &mut File, offset: u64) -> io::Result<Option<Symbol>> {
    let head = part(file, 0, 64)?;
    let at = |from, size| word(&head, from, size);
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return Ok(None);
    }
    let (Some(programs), Some(sections)) = (at(32, 8), at(40, 8)) else { return Ok(None) };
    let (Some(program_size), Some(program_count), Some(section_size), Some(section_count)) =
        (at(54, 2), at(56, 2), at(58, 2), at(60, 2))
    else {
        return Ok(None);
    };
    // From the place in the file to the address it is linked for: PT_LOAD has both.
    let table = part(file, programs, program_size * program_count)?;
    let address = entries(&table, program_size).find_map(|program| {
        let (kind, from, to, size) =
            (word(program, 0, 4)?, word(program, 8, 8)?, word(program, 16, 8)?, word(program, 32, 8)?);
        let inside = kind == 1 && offset >= from && offset - from < size;
        inside.then(|| (offset - from + to, from.wrapping_sub(to)))
    });
    let Some((address, back)) = address else { return Ok(None) };
    let table = part(file, sections, section_size * section_count)?;
    let section = |index: usize| entries(&table, section_size).nth(index);
    // SHT_SYMTAB is 2; its link is the section of names.
    let Some(symbols) = entries(&table, section_size).find(|section| word(section, 4, 4) == Some(2)) else {
        return Ok(None);
    };
    let whole = |file: &mut File, section: &[u8]| match (word(section, 24, 8), word(section, 32, 8)) {
        (Some(at), Some(length)) => part(file, at, length),
        _ => Err(io::ErrorKind::InvalidData.into()),
    };
    let Some(names) = word(symbols, 40, 4).and_then(|link| section(usize::try_from(link).ok()?)) else {
        return Ok(None);
    };
    let (list, names) = (whole(file, symbols)?, whole(file, names)?);
    let found = entries(&list, 24).find_map(|symbol| {
        let (name, kind, value, size) =
            (word(symbol, 0, 4)?, word(symbol, 4, 1)?, word(symbol, 8, 8)?, word(symbol, 16, 8)?);
        // STT_FUNC.
        (kind & 15 == 2 && value <= address && address - value < size).then_some((name, value, size))
    });
    let Some((name, value, size)) = found else { return Ok(None) };
    let name = names.get(usize::try_from(name).unwrap_or(usize::MAX)..).unwrap_or_default();
    let name = String::from_utf8_lossy(name.split(|&byte| byte == 0).next().unwrap_or_default()).into_owned();
    let bytes = part(file, value.wrapping_add(back), size)?;
    if bytes.len() as u64 != size {
        return Ok(None);
    }
    Ok(Some(Symbol { name, bytes: size, hash: fnv1a(&bytes) }))
}

fn entries(table: &[u8], size: u64) -> impl Iterator<Item = &[u8]> {
    table.chunks_exact(usize::try_from(size).unwrap_or(0).max(1))
}

/// Fowler, Noll, Vo: FNV-1a, 64 bits.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_of_this_program_is_found_with_its_bytes() {
        let code = code_at(code_at as *const () as usize).expect("this test is mapped from a file");
        let symbol = code.symbol.clone().expect("tests keep their symbols");
        assert!(symbol.name.contains("code_at"), "{symbol:?}");
        assert!(symbol.bytes > 0);
        let again = code_at(code_at as *const () as usize + 1).and_then(|code| code.symbol);
        assert_eq!(again, Some(symbol), "any address in it is the same function");
        let other = code_at(place as *const () as usize).and_then(|code| code.symbol).expect("place");
        assert_ne!(Some(other.hash), code.symbol.map(|symbol| symbol.hash));
    }

    #[test]
    fn what_is_not_from_a_file_is_nothing() {
        assert_eq!(code_at(8), None);
        let stack = 0_u8;
        assert_eq!(code_at(std::ptr::from_ref(&stack).addr()), None);
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        // draft-eastlake-fnv, appendix C.
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
