//! What will be run, in which order, settled before anything is touched.
//!
//! A plan is a workload, the cells of a sweep over it, and the arms of a comparison. It fixes everything a sceptic could
//! ask about afterwards: how many runs, in which order, what decides. Nothing of it changes once runs have been seen,
//! because a count or an order that reacts to results biases them.
//!
//! Order: blocks are the outer loop, so that every cell is spread over the whole experiment. Within a block the cells are
//! shuffled, and each cell runs all its arms adjacent in time, in an order that gives each arm each position equally often
//! ([`haul_stats::schedule`]). All of it follows from one stored seed.

use std::time::Duration;

use haul_host::settings::Consent;
use haul_stats::{ByteCount, Cell as Levels, CellValue, Decide, schedule};
use haul_workload::{Observe, RunSpec, Transport, Workload};
use rand::TryRng as _;
use serde_json::{Map, Value as Json, json};

use crate::arm::Arm;
use crate::error::LabError;
use crate::option;
use crate::sweep::{self, MAX_VALUES, Suffix};

/// The name of the arm that repeats the first one: what differs between the two is noise.
pub const NULL_ARM: &str = "null";

/// The most runs of one plan; a thousand blocks of two arms over fifty cells.
pub const MAX_RUNS: usize = 100_000;

/// The most runs of one cell and arm. Deciding takes memory by the square of the pairs: 100 MB for so many.
pub const MAX_REPEATS: u32 = 5_000;

/// What a run takes besides its warm-up and window before any has been seen: connecting, looking at what the hosts do without
/// it, fingerprints, collecting.
const OVERHEAD: Duration = Duration::from_millis(350);

/// One swept option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    /// The option, as [`option::assign`] knows it.
    pub option: String,
    /// Its values, in the order given.
    pub values: Vec<u64>,
}

impl Axis {
    /// Reads the values of an option: a list, a range or one value.
    ///
    /// # Errors
    /// [`LabError::Sweep`] where the values cannot be read.
    pub fn parse(option: &str, values: &str) -> Result<Self, LabError> {
        let suffix = if option == "rate" { Suffix::Si } else { Suffix::Binary };
        Ok(Self { option: option.to_owned(), values: sweep::parse(values, suffix)? })
    }
}

/// One combination of levels of the swept options.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// The levels by factor, as the record names them.
    pub levels: Levels,
    /// The workload at these levels, before an arm changes it.
    pub spec: RunSpec,
}

/// One run to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// The block, from 0.
    pub block: u32,
    /// Index of the cell.
    pub cell: usize,
    /// Index of the arm; `None` where nothing is compared.
    pub arm: Option<usize>,
    /// Whether it is profiled.
    pub profiled: bool,
}

/// What decides how many runs there are and what becomes of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    /// Runs of each cell, in a comparison of each arm: the number of pairs.
    pub repeats: u32,
    /// Whether the first arm is run once more as [`NULL_ARM`].
    pub null: bool,
    /// What all random choices follow from.
    pub seed: u64,
    /// When a difference counts.
    pub decide: Decide,
    /// What an arm may change besides what it names.
    pub consent: Consent,
    /// Whether, and how, runs are profiled.
    pub profile: Option<Profiling>,
}

/// How a plan profiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profiling {
    /// Samples a second and CPU.
    pub hz: u32,
    /// Which runs.
    pub of: Profiled,
}

/// Which runs are profiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profiled {
    /// So many more of each cell and arm, after those that are measured: sampling takes time, and what it takes must not
    /// be in the numbers.
    More(u32),
    /// The measured ones themselves.
    Measured,
}

impl Default for Rules {
    /// One run of each cell; the seed is for the caller to draw ([`seed`]).
    fn default() -> Self {
        Self {
            repeats: 1,
            null: false,
            seed: 0,
            decide: Decide::default(),
            consent: Consent::default(),
            profile: None,
        }
    }
}

/// A seed nobody chose.
#[must_use]
pub fn seed() -> u64 {
    // The generator fails only where the system has none. The order need not be secret, only not chosen by anyone.
    rand::rngs::SysRng.try_next_u64().unwrap_or_else(|_| haul_host::clock::now().0)
}

/// An experiment, checked.
#[derive(Debug, Clone)]
pub struct Plan {
    cells: Vec<Cell>,
    arms: Vec<Arm>,
    rules: Rules,
    order: Vec<Vec<Slot>>,
    requested: Json,
}

impl Plan {
    /// A plan that compares nothing: every cell of the sweep, `repeats` times.
    ///
    /// # Errors
    /// What of it cannot be run.
    pub fn repeat(spec: &RunSpec, axes: &[Axis], rules: Rules) -> Result<Self, LabError> {
        if rules.null {
            return Err(LabError::Plan(
                "--null repeats the first arm, and there is no arm: give --arm".to_owned(),
            ));
        }
        Self::build(spec, axes, Vec::new(), rules)
    }

    /// A plan that compares `arms`, the first of which is the base.
    ///
    /// # Errors
    /// What of it cannot be run or compared.
    pub fn compare(
        spec: &RunSpec,
        axes: &[Axis],
        mut arms: Vec<Arm>,
        rules: Rules,
    ) -> Result<Self, LabError> {
        let no = |why: String| Err(LabError::Plan(why));
        match arms.as_slice() {
            [] => return no("there is nothing to compare: give --arm NAME:spec at least twice".to_owned()),
            [only] if !rules.null => {
                return no(format!(
                    "'{}' is the only arm: give another to compare it with (--arm plain: changes nothing), or --null to \
                     compare it with itself",
                    only.name
                ));
            }
            _ => {}
        }
        for (index, arm) in arms.iter().enumerate() {
            if arms[..index].iter().any(|other| other.name == arm.name) {
                return no(format!("two arms are named '{}': their runs could not be told apart", arm.name));
            }
            if rules.null && arm.name == NULL_ARM {
                return no(format!(
                    "'{NULL_ARM}' is the name --null gives to the repeated first arm: choose another"
                ));
            }
        }
        for (index, arm) in arms.iter().enumerate() {
            for other in &arms[..index] {
                if alike(spec, arm, other)? {
                    return Err(LabError::ArmsAlike { first: other.name.clone(), second: arm.name.clone() });
                }
            }
        }
        if rules.null {
            arms.push(Arm { name: NULL_ARM.to_owned(), ..arms[0].clone() });
        }
        Self::build(spec, axes, arms, rules)
    }

    fn build(spec: &RunSpec, axes: &[Axis], arms: Vec<Arm>, rules: Rules) -> Result<Self, LabError> {
        if rules.repeats == 0 {
            return Err(LabError::Plan("there are no runs: give --runs or --pairs at least 1".to_owned()));
        }
        if rules.repeats > MAX_REPEATS {
            return Err(LabError::Plan(format!(
                "{} runs of one cell: {MAX_REPEATS} is the most",
                rules.repeats
            )));
        }
        for axis in axes {
            if axes.iter().filter(|other| other.option == axis.option).count() > 1 {
                return Err(LabError::Plan(format!("{} is swept twice", axis.option)));
            }
            if axis.values.is_empty() {
                return Err(LabError::Plan(format!("the sweep of {} has no value", axis.option)));
            }
            let clash = arms.iter().find(|arm| arm.options.iter().any(|(key, _)| *key == axis.option));
            if let Some(arm) = clash {
                return Err(LabError::Plan(format!(
                    "the arm '{}' sets {option}, which is swept as well: take opt.{option} out of the arm, or the list out \
                     of --{option}",
                    arm.name,
                    option = axis.option
                )));
            }
        }
        let overridden =
            |option: &str| arms.iter().any(|arm| arm.options.iter().any(|(key, _)| key == option));
        let cells = cells(spec, axes, &overridden)?;
        for cell in &cells {
            // With arms it is they that run, and one of them may mend what the base alone lacks.
            if arms.is_empty() {
                cell.spec.check().map_err(|error| LabError::Plan(error.to_string()))?;
            }
            for arm in &arms {
                let checked = arm.specify(&cell.spec)?.check();
                checked.map_err(|error| LabError::Plan(format!("arm '{}': {error}", arm.name)))?;
            }
        }
        let more = match rules.profile.map(|profile| profile.of) {
            Some(Profiled::More(runs)) => runs,
            Some(Profiled::Measured) | None => 0,
        };
        if more > MAX_REPEATS {
            return Err(LabError::Plan(format!(
                "{more} profiled runs of one cell: {MAX_REPEATS} is the most"
            )));
        }
        let repeats = rules.repeats as usize + more as usize;
        let total = cells.len().saturating_mul(arms.len().max(1)).saturating_mul(repeats);
        if total > MAX_RUNS {
            return Err(LabError::Plan(format!(
                "there are {total} runs, and {MAX_RUNS} is the most: take fewer cells, arms or pairs"
            )));
        }
        let mut order = order(cells.len(), arms.len(), rules.repeats, rules.seed);
        match rules.profile.map(|profile| profile.of) {
            Some(Profiled::Measured) => {
                order.iter_mut().flatten().for_each(|slot| slot.profiled = true);
            }
            Some(Profiled::More(runs)) => {
                let mut more = self::order(cells.len(), arms.len(), runs, rules.seed.rotate_left(32));
                more.iter_mut().flatten().for_each(|slot| slot.profiled = true);
                order.append(&mut more);
            }
            None => {}
        }
        let requested = requested(spec, axes, &arms, &rules);
        Ok(Self { cells, arms, rules, order, requested })
    }

    /// The cells of the sweep; one where nothing is swept.
    #[must_use]
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// The arms, the null arm last; none where nothing is compared.
    #[must_use]
    pub fn arms(&self) -> &[Arm] {
        &self.arms
    }

    /// What decides.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The runs in their order. Each group is one cell of one block: all arms of it, adjacent in time.
    #[must_use]
    pub fn order(&self) -> &[Vec<Slot>] {
        &self.order
    }

    /// How many runs there will be.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.order.iter().map(Vec::len).sum()
    }

    /// How long all of it is expected to take.
    #[must_use]
    pub fn expected(&self) -> Duration {
        self.order.iter().flatten().map(|slot| self.expected_run(slot.cell)).sum()
    }

    /// How long one run of a cell is expected to take.
    #[must_use]
    pub fn expected_run(&self, cell: usize) -> Duration {
        /// A run by amount is over when it is; its window is only the longest it may take.
        const BY_AMOUNT: Duration = Duration::from_secs(10);
        let spec = &self.cells[cell].spec;
        let longest = spec.lifetime();
        let run = if spec.bytes.is_some() { longest.min(BY_AMOUNT) } else { longest };
        // Idle latency is measured in a run of its own.
        let idle = if spec.probe.is_some() { spec.idle().lifetime() } else { Duration::ZERO };
        run + idle + OVERHEAD
    }

    /// The workload one run is to do.
    ///
    /// # Errors
    /// None for a slot of this plan: the options were tried as it was built.
    pub fn specify(&self, slot: Slot) -> Result<RunSpec, LabError> {
        let spec = &self.cells[slot.cell].spec;
        let mut spec = slot.arm.map_or_else(|| Ok(spec.clone()), |arm| self.arms[arm].specify(spec))?;
        let hz = self.rules.profile.filter(|_| slot.profiled).map(|profile| profile.hz);
        spec.observe = Observe { profile_hz: hz, ..spec.observe };
        Ok(spec)
    }

    /// Whether it is the measured runs that are profiled.
    #[must_use]
    pub fn profiles_together(&self) -> bool {
        self.rules.profile.is_some_and(|profile| profile.of == Profiled::Measured)
    }

    /// Looks at the files that runs are to send, before anything is made for them.
    ///
    /// # Errors
    /// Which one cannot be sent, and in which arm.
    pub fn check_files(&self) -> Result<(), LabError> {
        let arms: Vec<Option<usize>> =
            if self.arms.is_empty() { vec![None] } else { (0..self.arms.len()).map(Some).collect() };
        for cell in 0..self.cells.len() {
            for &arm in &arms {
                let checked = self.specify(Slot { block: 0, cell, arm, profiled: false })?.check_file();
                checked.map_err(|error| match arm {
                    Some(arm) => LabError::Plan(format!("arm '{}': {error}", self.arms[arm].name)),
                    None => LabError::Plan(error.to_string()),
                })?;
            }
        }
        Ok(())
    }

    /// Whether an arm is the repeated first one.
    #[must_use]
    pub fn is_null(&self, arm: usize) -> bool {
        self.rules.null && arm + 1 == self.arms.len()
    }

    /// The plan as the record keeps it.
    #[must_use]
    pub fn requested(&self) -> &Json {
        &self.requested
    }
}

/// Whether two arms ask for the same: same settings in any order, same workload.
fn alike(spec: &RunSpec, arm: &Arm, other: &Arm) -> Result<bool, LabError> {
    let settings = |arm: &Arm| {
        let mut texts: Vec<String> = arm.settings.iter().map(ToString::to_string).collect();
        texts.sort();
        texts
    };
    Ok(settings(arm) == settings(other) && arm.specify(spec)? == other.specify(spec)?)
}

/// Every combination of the axes' values, the last axis turning fastest.
fn cells(spec: &RunSpec, axes: &[Axis], overridden: &dyn Fn(&str) -> bool) -> Result<Vec<Cell>, LabError> {
    let mut cells = vec![Cell { levels: Levels::new(), spec: spec.clone() }];
    for axis in axes {
        if cells.len().saturating_mul(axis.values.len()) > MAX_VALUES {
            return Err(LabError::Plan(format!(
                "the sweep has more than {MAX_VALUES} cells: take fewer values"
            )));
        }
        let mut next = Vec::with_capacity(cells.len() * axis.values.len());
        for cell in &cells {
            for &value in &axis.values {
                let mut cell = cell.clone();
                option::assign(&mut cell.spec, &axis.option, &value.to_string())?;
                cell.levels.insert(factor(spec, &axis.option), CellValue::Int(value));
                next.push(cell);
            }
        }
        cells = next;
    }
    // Tables show these for every run. Where an arm sets one of them it is not a property of the cell.
    for cell in &mut cells {
        for (option, value) in shown(&cell.spec) {
            if !overridden(option) {
                cell.levels.insert(factor(spec, option), CellValue::Int(value));
            }
        }
    }
    Ok(cells)
}

/// What tables show of every run, swept or not.
fn shown(spec: &RunSpec) -> Vec<(&'static str, u64)> {
    let flows = ("flows", u64::from(spec.flows));
    match spec.workload {
        // What fits the path is known to the run alone.
        Workload::Stream if spec.fit_message => vec![flows],
        Workload::Stream => vec![("message", spec.message.0), flows],
        Workload::Rr | Workload::Crr => {
            vec![("request", spec.request.0), ("response", spec.response.0), flows]
        }
    }
}

/// The name of an option as a factor in the record, with its unit.
fn factor(spec: &RunSpec, option: &str) -> String {
    match option {
        "message" | "sndbuf" | "rcvbuf" | "send-offset" | "recv-offset" | "mss" | "request" | "response" => {
            format!("{}_bytes", option.replace('-', "_"))
        }
        "rate" if spec.workload == Workload::Stream => "rate_bits_per_s".to_owned(),
        "rate" => "rate_per_s".to_owned(),
        _ => option.replace('-', "_"),
    }
}

fn order(cells: usize, arms: usize, blocks: u32, seed: u64) -> Vec<Vec<Slot>> {
    let blocks = blocks as usize;
    // The cells of a block are shuffled as the arms are: by a schedule of their own. A sweep made once keeps the order
    // given, since there is nothing to average over and people watch it grow.
    let shuffled: Vec<Vec<usize>> = if blocks == 1 && arms == 0 {
        vec![(0..cells).collect()]
    } else {
        schedule::blocks(cells, blocks, seed)
    };
    let by_cell: Vec<Vec<Vec<usize>>> = (0..cells)
        .map(|cell| match arms {
            0 => Vec::new(),
            // A constant of splitmix64 keeps the cells' schedules apart without a second seed in the record.
            _ => schedule::blocks(arms, blocks, seed ^ (cell as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)),
        })
        .collect();
    let mut order = Vec::with_capacity(blocks * cells);
    for (block, row) in shuffled.iter().enumerate() {
        let number = u32::try_from(block).unwrap_or(u32::MAX);
        for &cell in row {
            let slot = |arm| Slot { block: number, cell, arm, profiled: false };
            order.push(match by_cell[cell].get(block) {
                None => vec![slot(None)],
                Some(arms) => arms.iter().map(|&arm| slot(Some(arm))).collect(),
            });
        }
    }
    order
}

fn requested(spec: &RunSpec, axes: &[Axis], arms: &[Arm], rules: &Rules) -> Json {
    let size = |size: Option<ByteCount>| size.map_or(json!("auto"), |size| json!(size.0));
    let mut map = Map::new();
    let mut put = |key: &str, value: Json| {
        map.insert(key.to_owned(), value);
    };
    put("workload", json!(spec.workload));
    put("transport", json!(spec.transport));
    put("flows", json!(spec.flows));
    put("threads", spec.threads.map_or(json!("auto"), |threads| json!(threads)));
    match spec.workload {
        Workload::Stream => {
            put("direction", json!(spec.direction));
            put("message_bytes", if spec.fit_message { json!("auto") } else { json!(spec.message.0) });
            put("payload", json!(spec.payload));
            put("bytes", json!(spec.bytes));
            put("rate_bits_per_s", spec.rate.map_or(json!("max"), |rate| json!(rate.0)));
            match spec.transport {
                Transport::Tcp => {
                    put("send_with", json!(spec.send_with));
                    if let Some(path) = &spec.send_file {
                        put("send_file", json!(path.to_string_lossy()));
                    }
                    put("recv_with", json!(spec.recv_with));
                    put("send_offset_bytes", json!(spec.send_offset.0));
                    put("recv_offset_bytes", json!(spec.recv_offset.0));
                }
                Transport::Udp => {
                    put("segment", json!(spec.segment));
                    put("gro", json!(spec.gro));
                    put("batch", json!(spec.batch));
                    put("dont_fragment", json!(spec.dont_fragment));
                }
            }
            put("probe_per_s", json!(spec.probe.map(|probe| probe.rate)));
        }
        Workload::Rr | Workload::Crr => {
            put("request_bytes", json!(spec.request.0));
            put("response_bytes", json!(spec.response.0));
            put("in_flight", json!(spec.in_flight));
            put("rate_per_s", spec.pace.map_or(json!("max"), |pace| json!(pace.0)));
            put("spin", json!(spec.spin));
            if spec.transport == Transport::Udp {
                put("timeout_s", json!(spec.timeout.as_secs_f64()));
            }
            if spec.workload == Workload::Crr {
                put("close", json!(if spec.reset { "reset" } else { "fin" }));
            }
        }
    }
    put("sndbuf_bytes", size(spec.sndbuf));
    put("rcvbuf_bytes", size(spec.rcvbuf));
    if spec.transport == Transport::Tcp {
        put("nodelay", json!(spec.nodelay));
        put("cc", json!(spec.cc));
        put("mss_bytes", spec.mss.map_or(json!("auto"), |mss| json!(mss)));
    }
    put("tos", json!(spec.tos));
    put("busy_poll_us", json!(spec.busy_poll_us));
    put("bind_device", json!(spec.bind_device));
    put("mark", json!(spec.mark));
    put("warmup_s", json!(spec.warmup.as_secs_f64()));
    put("time_s", json!(spec.window.as_secs_f64()));
    put("interval_s", json!(spec.interval.map(|interval| interval.as_secs_f64())));
    put("placement", json!(spec.placement));
    put("pin_client", json!(spec.pin.client.as_ref().map(ToString::to_string)));
    put("pin_server", json!(spec.pin.server.as_ref().map(ToString::to_string)));
    for axis in axes {
        put(&factor(spec, &axis.option), json!(axis.values));
    }
    if arms.is_empty() {
        put("runs", json!(rules.repeats));
    } else {
        put("arms", json!(arms.iter().map(ToString::to_string).collect::<Vec<_>>()));
        put("pairs", json!(rules.repeats));
        put("null", json!(rules.null));
        put("allow_side_effects", json!(rules.consent.side_effects));
        put("allow_global", json!(rules.consent.global));
        put("confidence", json!(rules.decide.confidence));
        put("min_effect", json!(rules.decide.min_effect));
        put("max_spread", json!(rules.decide.max_spread));
        put("max_failed", json!(rules.decide.max_failed));
    }
    put("seed", json!(rules.seed));
    if !spec.observe.events.is_empty() {
        put("counters", json!(spec.observe.events));
    }
    if let Some(Profiling { hz, of }) = rules.profile {
        put("profile_hz", json!(hz));
        put(
            "profiled_runs",
            match of {
                Profiled::More(runs) => json!(runs),
                Profiled::Measured => json!("measured"),
            },
        );
    }
    Json::Object(map)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use haul_stats::BitRate;

    use super::*;

    fn arms(texts: &[&str]) -> Vec<Arm> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn rules(repeats: u32, null: bool) -> Rules {
        Rules { repeats, null, seed: 7, ..Rules::default() }
    }

    fn compare(texts: &[&str], null: bool) -> Result<Plan, LabError> {
        Plan::compare(&RunSpec::default(), &[], arms(texts), rules(10, null))
    }

    #[test]
    fn a_plan_that_cannot_be_compared_says_why_and_what_to_do() {
        for (texts, null, needle) in [
            (&[][..], false, "at least twice"),
            (&["a:nic.tso=on"], false, "--null"),
            (&["a:nic.tso=on", "a:nic.tso=off"], false, "two arms are named 'a'"),
            (&["a:nic.tso=on", "b:nic.tso=on"], false, "change nothing against each other"),
            (&["a:nic.tso=on,nic.gro=on", "b:nic.gro=on,nic.tso=on"], false, "change nothing"),
            (&["a:", "b:opt.message=128K"], false, "change nothing"),
            (&["null:nic.tso=on", "b:"], true, "choose another"),
        ] {
            let error = compare(texts, null).unwrap_err();
            assert_eq!(error.exit(), 2, "{texts:?}");
            assert!(error.to_string().contains(needle), "{texts:?}: {error}");
        }
        assert!(compare(&["a:nic.tso=on"], true).is_ok(), "one arm against itself shows the noise floor");
    }

    #[test]
    fn a_swept_option_cannot_be_set_by_an_arm_as_well() {
        let axes = [Axis::parse("message", "1K,2K").unwrap()];
        let error =
            Plan::compare(&RunSpec::default(), &axes, arms(&["a:", "b:opt.message=4K"]), rules(1, false))
                .unwrap_err();
        assert!(error.to_string().contains("take opt.message out of the arm"), "{error}");
    }

    #[test]
    fn options_that_mend_each_other_are_checked_together() {
        let slow = RunSpec { rate: Some(BitRate(1_000_000)), ..RunSpec::default() };
        let error = Plan::repeat(&slow, &[], rules(1, false)).unwrap_err();
        assert!(error.exit() == 2 && error.to_string().contains("--message"), "{error}");
        let axes = [Axis::parse("message", "1K,2K").unwrap()];
        assert!(Plan::repeat(&slow, &axes, rules(1, false)).is_ok(), "the message is swept");
        let texts = ["a:opt.rate=1M,opt.message=1K", "b:opt.message=2K"];
        assert!(compare(&texts, false).is_ok());
        let error = compare(&["a:opt.rate=1M", "b:"], false).unwrap_err();
        assert!(error.exit() == 2 && error.to_string().contains("arm 'a'"), "{error}");
        let error = compare(&["a:opt.send-offset=1,opt.send-with=splice", "b:"], false).unwrap_err();
        assert!(error.to_string().contains("--send-with write"), "{error}");
    }

    #[test]
    fn offsets_and_the_segment_size_are_axes_with_their_unit() {
        let axes = ["send-offset", "recv-offset", "mss"].map(|name| Axis::parse(name, "100,200").unwrap());
        let plan = Plan::repeat(&RunSpec::default(), &axes, rules(1, false)).unwrap();
        assert_eq!(plan.cells().len(), 8);
        let cell = &plan.cells()[5];
        for (factor, value) in [("send_offset_bytes", 200), ("recv_offset_bytes", 100), ("mss_bytes", 200)] {
            assert_eq!(cell.levels[factor], CellValue::Int(value), "{factor}");
        }
        assert_eq!((cell.spec.send_offset.0, cell.spec.recv_offset.0, cell.spec.mss), (200, 100, Some(200)));
    }

    #[test]
    fn an_arms_own_option_is_no_level_of_the_cell() {
        let plan = compare(&["a:", "b:opt.message=4K"], false).unwrap();
        assert_eq!(plan.cells()[0].levels, BTreeMap::from([("flows".to_owned(), CellValue::Int(1))]));
        let slot = Slot { block: 0, cell: 0, arm: Some(1), profiled: false };
        assert_eq!(plan.specify(slot).unwrap().message.0, 4096);
    }

    #[test]
    fn too_many_runs_and_cells_are_refused_before_any_is_made() {
        let spec = RunSpec::default();
        let wide = [Axis::parse("message", "1..200").unwrap(), Axis::parse("flows", "1..200").unwrap()];
        assert!(Plan::repeat(&spec, &wide, rules(1, false)).unwrap_err().to_string().contains("cells"));
        let one = [Axis::parse("message", "1..200").unwrap()];
        assert!(
            Plan::repeat(&spec, &one, rules(1_000, false)).unwrap_err().to_string().contains("200000 runs")
        );
        assert!(Plan::repeat(&spec, &[], rules(5_001, false)).unwrap_err().to_string().contains("5000"));
        assert!(Plan::repeat(&spec, &one, rules(0, false)).unwrap_err().to_string().contains("no runs"));
        let bad = [Axis::parse("message", "0,1").unwrap()];
        assert_eq!(Plan::repeat(&spec, &bad, rules(1, false)).unwrap_err().exit(), 2);
    }

    #[test]
    fn a_sweep_made_once_keeps_the_order_given() {
        let axes = [Axis::parse("message", "1K,4K").unwrap(), Axis::parse("flows", "1,2").unwrap()];
        let plan = Plan::repeat(&RunSpec::default(), &axes, rules(1, false)).unwrap();
        let seen: Vec<_> = plan
            .order()
            .iter()
            .flatten()
            .map(|slot| {
                (plan.cells()[slot.cell].spec.message.0, plan.cells()[slot.cell].spec.flows, slot.arm)
            })
            .collect();
        assert_eq!(seen, [(1024, 1, None), (1024, 2, None), (4096, 1, None), (4096, 2, None)]);
        assert_eq!(plan.expected(), 4 * (Duration::from_secs(11) + OVERHEAD));
    }

    #[test]
    fn every_block_runs_every_cell_and_arm_once_with_the_arms_adjacent_and_balanced() {
        let axes = [Axis::parse("message", "1K,2K,4K").unwrap()];
        let texts = ["a:", "b:nic.tso=on"];
        let plan = Plan::compare(&RunSpec::default(), &axes, arms(&texts), rules(12, true)).unwrap();
        assert_eq!((plan.arms().len(), plan.runs()), (3, 12 * 3 * 3));
        let mut firsts: BTreeMap<(usize, usize), u32> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for group in plan.order() {
            assert_eq!(group.len(), 3);
            assert!(group.iter().all(|slot| slot.block == group[0].block && slot.cell == group[0].cell));
            *firsts.entry((group[0].cell, group[0].arm.unwrap())).or_default() += 1;
            seen.extend(group.iter().map(|slot| (slot.block, slot.cell, slot.arm)));
        }
        assert_eq!(seen.len(), plan.runs(), "a run is missing or planned twice");
        assert!(firsts.len() == 9 && firsts.values().all(|&count| count == 4), "first positions: {firsts:?}");
        let blocks: Vec<u32> = plan.order().iter().map(|group| group[0].block).collect();
        assert!(blocks.is_sorted(), "a block must end before the next begins");
    }

    #[test]
    fn the_order_follows_from_the_stored_seed_alone() {
        let with_seed = |seed| {
            let rules = Rules { repeats: 8, null: true, seed, ..Rules::default() };
            Plan::compare(&RunSpec::default(), &[], arms(&["a:", "b:nic.tso=on"]), rules).unwrap()
        };
        assert_eq!(with_seed(3).order(), with_seed(3).order());
        assert!((4..20).any(|seed| with_seed(seed).order() != with_seed(3).order()));
        assert_eq!(with_seed(3).requested()["seed"], json!(3));
    }
}
