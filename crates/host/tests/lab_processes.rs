//! The lab across processes: an ordinary user's, and one whose owner is killed.
//!
//! A process may enter a user namespace only before it has threads, and the usual test harness is made of threads. So
//! this file has its own `main`: it runs the cases one after the other, and itself again as their child.

use std::env;
use std::error::Error;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use haul_host::link;
use haul_host::netns::Netns;
use haul_host::privilege;
use haul_host::probe::{Fingerprint, HostCpu};
use haul_host::socket::{self, Requested};
use haul_host::veth_lab::{VethLab, VethOptions};
use haul_stats::ByteCount;

type Outcome = Result<(), Box<dyn Error>>;

type Case = (&'static str, fn() -> Outcome);

const BOUND: Duration = Duration::from_secs(5);

/// Nobody: an ordinary user that every system has.
const NOBODY: u32 = 65534;

/// Says which part the child plays.
const PART: &str = "HAUL_TEST_PART";

fn main() -> ExitCode {
    let part = env::var(PART);
    if let Ok(part) = part {
        let outcome = match part.as_str() {
            "hold" => hold(),
            "user" => privilege::enter_user_namespace().map_err(Into::into).and_then(|()| user()),
            other => Err(format!("no part '{other}'").into()),
        };
        return outcome.map_or_else(
            |error: Box<dyn Error>| {
                eprintln!("{error}");
                ExitCode::FAILURE
            },
            |()| ExitCode::SUCCESS,
        );
    }
    let cases: [Case; 2] = [
        ("an_ordinary_user_gets_a_lab_through_a_user_namespace", ordinary_user),
        ("a_lab_whose_owner_is_killed_leaves_nothing", killed_owner),
    ];
    let filter = env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let mut failed = 0;
    for (name, case) in cases.into_iter().filter(|(name, _)| name.contains(&filter)) {
        match case() {
            Ok(()) => println!("test {name} ... ok"),
            Err(error) => {
                println!("test {name} ... FAILED: {error}");
                failed += 1;
            }
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What an ordinary user can do: a lab with traffic, and the probes, each with the source that is left to him.
fn user() -> Outcome {
    let lab = VethLab::build(VethOptions::default())?;
    round_trip(&lab)?;
    let before = HostCpu::read()?;
    let used = HostCpu::read()?.since(&before);
    if used.source != "/proc/stat idle" {
        return Err(format!("only root of the host may read {}", used.source).into());
    }
    let facts = lab.server.run(|| Fingerprint::collect(&lab.server_dev))?;
    for (key, fact) in facts.iter() {
        if fact.value.is_some() == fact.reason.is_some() {
            return Err(format!("{key} has neither value nor reason, or both: {fact:?}").into());
        }
    }
    match facts.value("nic.driver") {
        Some("veth") => Ok(()),
        other => Err(format!("the driver of a veth is {other:?}").into()),
    }
}

/// A word from one end of the lab to the other.
fn round_trip(lab: &VethLab) -> Outcome {
    let plain = Requested::default();
    let listener = lab.server.run(|| socket::listen((lab.server_addr, 0).into(), &plain))??;
    let target = listener.local_addr()?;
    let mut client = lab.client.run(|| socket::connect(target, &plain, BOUND))??;
    let (mut server, _) = listener.accept()?;
    server.set_read_timeout(Some(BOUND))?;
    client.write_all(b"ping")?;
    let mut word = [0; 4];
    server.read_exact(&mut word)?;
    if &word == b"ping" { Ok(()) } else { Err("the word was garbled on its way".into()) }
}

/// Holds a lab until standard input ends.
fn hold() -> Outcome {
    let lab = VethLab::build(VethOptions::default())?;
    println!("{}", lab.server.id().inode);
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn ordinary_user() -> Outcome {
    // The build directory may be closed to other users, so the child runs from a copy.
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    let program = folder.path().join("lab_processes");
    fs::copy(env::current_exe()?, &program)?;
    let mut command = Command::new(&program);
    // With an empty PATH: nothing here may need an external program.
    command
        .env_clear()
        .env(PART, "user")
        .env("PATH", "")
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .current_dir("/");
    if privilege::effective_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)).into())
}

fn killed_owner() -> Outcome {
    if !privilege::effective_root() {
        return Err("it watches the namespaces of another process: run it as root".into());
    }
    let before = devices()?;
    let mut child = Command::new(env::current_exe()?)
        .env(PART, "hold")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let outcome = kill_and_watch(&mut child);
    // Whatever happened, the child must not stay.
    let _ = child.kill();
    child.wait()?;
    outcome?;
    if devices()? == before {
        Ok(())
    } else {
        Err(format!("the host had {before:?} and has {:?}", devices()?).into())
    }
}

fn kill_and_watch(child: &mut Child) -> Outcome {
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    let inode: u64 = line.trim().parse()?;
    // A wire from the child's namespace to one of ours: it falls when the kernel removes the child's.
    let watch = Netns::create()?;
    {
        let server = Netns::open(&descriptor_of(child.id(), inode)?)?;
        server.run(|| link::create_veth("haul-w", "haul-w", &watch, ByteCount(1500)))??;
    }
    watch.run(|| link::link_by_name("haul-w"))??;
    child.kill()?;
    let start = Instant::now();
    while watch.run(|| link::link_by_name("haul-w"))?.is_ok() {
        if start.elapsed() > BOUND {
            return Err(
                format!("namespace {inode} is still there {BOUND:?} after its owner was killed").into()
            );
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// The descriptor by which process `pid` holds the namespace `inode`.
fn descriptor_of(pid: u32, inode: u64) -> Result<PathBuf, Box<dyn Error>> {
    let is_it = |path: &Path| {
        let namespace = fs::read_link(path).is_ok_and(|target| target.to_string_lossy().starts_with("net:"));
        namespace && fs::metadata(path).is_ok_and(|found| found.ino() == inode)
    };
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let path = entry?.path();
        if is_it(&path) {
            return Ok(path);
        }
    }
    Err(format!("process {pid} has no descriptor of namespace {inode}").into())
}

fn devices() -> Result<Vec<String>, Box<dyn Error>> {
    Ok(link::links()?.into_iter().map(|link| link.name).collect())
}
