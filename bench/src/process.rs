//! The programs that are measured: a process for each end, in its namespace, on its CPU.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Seek as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use haul_host::clock;
use haul_host::netns::Netns;
use haul_host::thread::{self, CpuList};

/// A process that does not outlive its handle. What it writes is kept in files, which no amount of it can block.
pub(crate) struct Process {
    child: Child,
    name: String,
    said: File,
    complained: File,
}

impl Process {
    /// Starts a command line inside a namespace, on a CPU.
    pub(crate) fn start(netns: &Netns, words: &[String], cpu: Option<u32>) -> Result<Self> {
        let (name, rest) = words.split_first().context("an empty command line")?;
        let (said, complained) = (tempfile::tempfile()?, tempfile::tempfile()?);
        let mut command = Command::new(name);
        command.args(rest).stdin(Stdio::null()).stdout(said.try_clone()?).stderr(complained.try_clone()?);
        let cpu = cpu.map(|cpu| cpu.to_string().parse::<CpuList>()).transpose()?;
        let child = netns.run(move || -> Result<Child> {
            if let Some(cpu) = &cpu {
                thread::pin_current(cpu)?;
            }
            command.spawn().map_err(|error| match error.kind() {
                ErrorKind::NotFound => anyhow::anyhow!("{name} is not installed (./ci.sh setup installs it)"),
                _ => anyhow::Error::new(error).context(format!("cannot start {name}")),
            })
        })??;
        Ok(Self { child, name: name.clone(), said, complained })
    }

    /// Whether it still runs; if not, that is an error with its last words.
    pub(crate) fn must_run(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("ended too early ({status}): {}", self.last_words()),
        }
    }

    /// Waits for its end, which must be a good one, and returns what it wrote on standard output.
    pub(crate) fn finish(mut self, within: Duration) -> Result<String> {
        let until = clock::now().after(within);
        let status = loop {
            match self.child.try_wait()? {
                Some(status) => break status,
                None if clock::now() > until => bail!("did not end within {within:?}"),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        ensure!(ExitStatus::success(&status), "failed ({status}): {}", self.last_words());
        text(&mut self.said)
    }

    /// The line that says most about its end.
    fn last_words(&mut self) -> String {
        let complained = text(&mut self.complained).unwrap_or_default();
        let said = text(&mut self.said).unwrap_or_default();
        telling(&complained, &said).map_or_else(|| format!("{} said nothing", self.name), str::to_owned)
    }
}

/// One that speaks of an error, or the first complaint, or the last word: some tools complain on standard output.
fn telling<'a>(complained: &'a str, said: &'a str) -> Option<&'a str> {
    let lines = |text: &'a str| text.lines().map(str::trim).filter(|line| !line.is_empty());
    let error = |line: &&str| line.to_ascii_lowercase().contains("error");
    let error = lines(complained).chain(lines(said)).find(error);
    error.or_else(|| lines(complained).next()).or_else(|| lines(said).next_back())
}

fn text(file: &mut File) -> Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

impl Drop for Process {
    fn drop(&mut self) {
        // Already gone is as good as killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_a_tool_wrote_the_line_with_the_error_is_kept() {
        for (complained, said, kept) in [
            (
                "haul: error: unrecognized subcommand 'rr'\n\nUsage: haul\n",
                "{}",
                Some("haul: error: unrecognized subcommand 'rr'"),
            ),
            ("", "version 3.7\n ERROR: Can`t bind\nbye\n", Some("ERROR: Can`t bind")),
            ("no route\nat all\n", "one\n", Some("no route")),
            ("\n", "one\ntwo\n\n", Some("two")),
            ("", "", None),
        ] {
            assert_eq!(telling(complained, said), kept);
        }
    }
}
