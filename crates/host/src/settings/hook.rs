//! Commands of the user's that turn something on and off which haul does not know.
//!
//! Each is run by `/bin/sh` in the device's network namespace, in a process group of its own, with a bound on its time and on
//! how much of its output is kept. Where the bound is reached the group is ended. What a command that was in time leaves
//! running is its business: a load that one command starts and the other ends is a thing people compare.

use std::collections::VecDeque;
use std::io::{self, PipeReader, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use super::error::SettingError;
use crate::clock;
use crate::error::{HostError, Named as _, Result};
use crate::netns::Netns;
use crate::sys;

/// How long a command may take.
pub(super) const BOUND: Duration = Duration::from_secs(30);

/// How much of its output is kept, in bytes from its end: what went wrong is said last.
const KEPT: usize = 4 << 10;

/// Runs a command and returns what it wrote, both streams as they came.
pub(super) fn run(netns: &Netns, device: &str, command: &str) -> Result<String> {
    run_within(netns, device, command, BOUND)
}

fn run_within(netns: &Netns, device: &str, command: &str, bound: Duration) -> Result<String> {
    let mut kept = VecDeque::new();
    let status = netns.run(|| start_and_wait(command, device, bound, &mut kept))??;
    let output = String::from_utf8_lossy(kept.make_contiguous()).trim_end().to_owned();
    let how = match status {
        Some(status) if status.success() => return Ok(output),
        Some(status) => status.to_string(),
        None => format!("not done after {} s, and ended", bound.as_secs_f64()),
    };
    Err(SettingError::Hook { command: command.to_owned(), how, output }.into())
}

/// The status, or `None` where it took too long.
fn start_and_wait(
    command: &str,
    device: &str,
    bound: Duration,
    kept: &mut VecDeque<u8>,
) -> Result<Option<ExitStatus>> {
    let object = || format!("/bin/sh -c {command}");
    let (mut reader, out) = io::pipe().named("make a pipe for the output of", object)?;
    let err = out.try_clone().named("make a pipe for the output of", object)?;
    sys::never_block(reader.as_fd()).named("read the output of", object)?;
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]).env("HAUL_DEVICE", device).stdin(Stdio::null()).stdout(out).stderr(err);
    let mut child = shell.process_group(0).spawn().named("run", object)?;
    // Its ends of the pipe are the command's alone now, so who writes after it ended is told that nobody reads.
    drop(shell);
    let until = clock::now().after(bound);
    loop {
        let ended = child.try_wait().named("wait for", object)?;
        drain(&mut reader, kept).named("read the output of", object)?;
        if ended.is_some() {
            return Ok(ended);
        }
        if clock::now() >= until {
            break;
        }
        clock::sleep_until(clock::now().after(Duration::from_millis(2)));
    }
    // The child has not been waited for, so its number is still its own.
    let group = i32::try_from(child.id());
    let group = group.map_err(|error| HostError::os("end", object(), io::Error::other(error)))?;
    sys::kill_group(group).named("end", object)?;
    child.wait().named("wait for", object)?;
    drain(&mut reader, kept).named("read the output of", object)?;
    Ok(None)
}

/// Takes what is there, and no more than one turn's worth of a command that never stops writing.
fn drain(reader: &mut PipeReader, kept: &mut VecDeque<u8>) -> io::Result<()> {
    let mut some = [0; 4 << 10];
    for _ in 0..256 {
        match reader.read(&mut some) {
            Ok(0) => break,
            Ok(length) => {
                kept.extend(&some[..length]);
                kept.drain(..kept.len().saturating_sub(KEPT));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_runs_with_its_device_and_its_output_is_kept_from_the_end() {
        let here = Netns::current().unwrap();
        assert_eq!(run(&here, "eth7", "echo on $HAUL_DEVICE; echo and >&2").unwrap(), "on eth7\nand");
        let noisy = "yes | head -c 900000; echo last word; exit 3";
        let error = run(&here, "eth7", noisy).unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.contains("last word"), "{error}");
        assert!(error.len() < 5000, "{}", error.len());
    }

    #[test]
    fn a_command_that_takes_too_long_is_ended_with_all_it_started() {
        let here = Netns::current().unwrap();
        let bound = Duration::from_millis(300);
        let error = run_within(&here, "eth7", "sleep 60 & echo $!; wait", bound).unwrap_err();
        let HostError::Setting(error) = error else { panic!("{error}") };
        let SettingError::Hook { how, output: pid, .. } = *error else { panic!("{error}") };
        assert!(how.contains("not done after 0.3 s"), "{how}");
        let alive = || {
            let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            !state.is_empty() && !state.contains(") Z ")
        };
        let until = clock::now().after(Duration::from_secs(5));
        while alive() && clock::now() < until {
            std::thread::yield_now();
        }
        assert!(!alive(), "process {pid} still runs");
    }

    #[test]
    fn what_a_command_in_time_leaves_running_neither_holds_us_up_nor_is_ended() {
        let here = Netns::current().unwrap();
        let pid: i32 = run(&here, "eth7", "sleep 60 & echo $!").unwrap().parse().unwrap();
        assert!(std::path::Path::new(&format!("/proc/{pid}")).exists());
        run(&here, "eth7", &format!("kill {pid}")).unwrap();
    }
}
