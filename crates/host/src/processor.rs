//! What this host's CPU is, and the sizes of its caches, as the kernel tells them.
//!
//! Caches come from `/sys/devices/system/cpu/cpuN/cache` (`Documentation/ABI/testing/sysfs-devices-system-cpu`). A virtual
//! machine tells what its host chose to tell: the last level is often that of the whole socket, or none at all. The model comes
//! from `/proc/cpuinfo`, whose fields differ by architecture.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;

use haul_stats::ByteCount;

/// A cache that holds data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    /// 1 is the nearest.
    pub level: u32,
    /// What it holds.
    pub size: ByteCount,
    /// The CPUs that share it, as the kernel writes them.
    pub shared: String,
}

/// The caches of a CPU that hold data, nearest first; none where the kernel does not know them.
#[must_use]
pub fn caches(cpu: u32) -> Vec<Cache> {
    caches_in(Path::new(&format!("/sys/devices/system/cpu/cpu{cpu}/cache")))
}

fn caches_in(folder: &Path) -> Vec<Cache> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<Cache> = entries.flatten().filter_map(|entry| cache(&entry.path())).collect();
    found.sort_by_key(|cache| (cache.level, cache.size));
    found
}

fn cache(folder: &Path) -> Option<Cache> {
    let line = |name: &str| fs::read_to_string(folder.join(name)).ok().map(|text| text.trim().to_owned());
    if line("type")? == "Instruction" {
        return None;
    }
    let size: ByteCount = line("size")?.parse().ok()?;
    let level = line("level")?.parse().ok()?;
    (size.0 > 0).then(|| Cache { level, size, shared: line("shared_cpu_list").unwrap_or_default() })
}

/// What a CPU is, in the numbers of its maker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// Vendor (x86, RISC-V) or implementer (Arm).
    pub vendor: String,
    /// Family, model, stepping; or part, variant, revision; or architecture and implementation.
    pub numbers: [u64; 3],
    /// The flags of instructions, as the kernel writes them.
    pub flags: String,
}

/// The first CPU's model; `None` where `/proc/cpuinfo` does not say.
#[must_use]
pub fn model() -> Option<Model> {
    model_of(&first_described().ok()?)
}

/// The first processor's lines of `/proc/cpuinfo`. The others are not read: on a large machine that interrupts every CPU to ask for its frequency.
pub(crate) fn first_described() -> io::Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for line in BufReader::with_capacity(2048, File::open("/proc/cpuinfo")?).lines() {
        let line = line?;
        match line.split_once(':') {
            Some((name, value)) => found.insert(name.trim().to_owned(), value.trim().to_owned()),
            None if found.is_empty() => continue,
            None => break,
        };
    }
    Ok(found)
}

fn model_of(lines: &BTreeMap<String, String>) -> Option<Model> {
    let text = |name: &str| lines.get(name).cloned();
    let number = |name: &str| {
        let text = lines.get(name)?;
        text.strip_prefix("0x").map_or_else(|| text.parse().ok(), |hex| u64::from_str_radix(hex, 16).ok())
    };
    let graphic = |text: String| text.chars().filter(char::is_ascii_graphic).take(16).collect::<String>();
    let flags = text("flags").or_else(|| text("Features")).or_else(|| text("isa")).unwrap_or_default();
    let (vendor, numbers) = if let Some(vendor) = text("vendor_id") {
        (vendor, [number("cpu family")?, number("model")?, number("stepping").unwrap_or(0)])
    } else if let Some(implementer) = text("CPU implementer") {
        let of = |name| number(name).unwrap_or(0);
        (implementer, [number("CPU part")?, of("CPU variant"), of("CPU revision")])
    } else {
        (text("mvendorid")?, [number("marchid").unwrap_or(0), number("mimpid").unwrap_or(0), 0])
    };
    let vendor = graphic(vendor);
    (!vendor.is_empty()).then_some(Model { vendor, numbers, flags })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_are_told_nearest_first_and_those_of_instructions_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        for (index, level, kind, size) in [
            (0, "3", "Unified", "266240K"),
            (1, "1", "Data", "48K"),
            (2, "1", "Instruction", "32K"),
            (3, "2", "Unified", "2048K"),
            (4, "4", "Unified", "nonsense"),
            (5, "4", "Unified", "0K"),
        ] {
            let path = folder.path().join(format!("index{index}"));
            fs::create_dir(&path).unwrap();
            for (name, value) in
                [("level", level), ("type", kind), ("size", size), ("shared_cpu_list", "0-1")]
            {
                fs::write(path.join(name), format!("{value}\n")).unwrap();
            }
        }
        let found: Vec<_> =
            caches_in(folder.path()).iter().map(|cache| (cache.level, cache.size.0 >> 10)).collect();
        assert_eq!(found, [(1, 48), (2, 2048), (3, 266_240)]);
        assert_eq!(caches_in(&folder.path().join("none")), []);
    }

    #[test]
    fn the_numbers_of_a_model_come_from_whatever_fields_there_are() {
        let of = |lines: &[(&str, &str)]| {
            let lines = lines.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            model_of(&lines).map(|model| (model.vendor, model.numbers))
        };
        let x86 = [("vendor_id", "GenuineIntel"), ("cpu family", "6"), ("model", "207"), ("stepping", "8")];
        assert_eq!(of(&x86), Some(("GenuineIntel".to_owned(), [6, 207, 8])));
        let arm = [
            ("CPU implementer", "0x41"),
            ("CPU part", "0xd0c"),
            ("CPU variant", "0x3"),
            ("CPU revision", "1"),
        ];
        assert_eq!(of(&arm), Some(("0x41".to_owned(), [0xd0c, 3, 1])));
        let riscv = [("mvendorid", "0x5b7"), ("marchid", "0x0"), ("mimpid", "0x0")];
        assert_eq!(of(&riscv), Some(("0x5b7".to_owned(), [0, 0, 0])));
        assert_eq!(of(&[("vendor_id", "GenuineIntel")]), None);
        assert_eq!(of(&[]), None);
    }
}
