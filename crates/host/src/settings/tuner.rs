//! Applies settings on one host, proves that they took, and puts back what was there.
//!
//! ```text
//!   apply:   take the directory's lock · is it still the device? · read the device · resolve settings to items
//!            refuse what is the whole host's unasked, and where another haul holds anything · journal what will change (fsync)
//!            change, in the order things depend on each other · wait for the carrier · read back
//!              not as asked, or more than asked? -> undo this apply, forget its journal lines, error
//!            what an earlier apply set and is no longer listed goes back in the same change; what stays is not touched
//!   verify:  read back, and ask who else changed anything; whatever is not as apply left it is somebody else's doing
//!   restore: ask for what was asked for before, last things first, read back, remove the journal
//! ```
//!
//! Side effects are judged against the state before the first change and not against the last arm's: what an earlier
//! arm dragged along and this one brings back is no side effect.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::access::{Access, Now, Said, Step};
use super::error::SettingError;
use super::expand::expand;
use super::files::Roots;
use super::item::{Change, Item, Kind, Refusal, Scope};
use super::rules;
use super::setting::Setting;
use crate::error::{HostError, Result};
use crate::journal::{self, Alive, Before, Desk, Device, Identity, Journal, Outcome, Owner};
use crate::link::{self, Link};
use crate::netns::Netns;
use crate::watch::Watch;

/// NICs that reset on a change of features train their link anew; 10GBASE-T takes about 6 s for that.
const CARRIER_WAIT: Duration = Duration::from_secs(15);

/// What a list of settings would do to a device as it is now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// What would be changed, back to its original state included.
    pub changes: Vec<Change>,
    /// What is as asked already.
    pub already: Vec<Item>,
    /// What the kernel is expected not to take.
    pub refusals: Vec<Refusal>,
    /// Changes nobody listed that are expected to come along. Foreseen for features only.
    pub side_effects: Vec<Change>,
}

/// What a list of settings did to a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// Changes of state that were asked for, those back to the original state included.
    pub changed: Vec<Change>,
    /// What else of the device differs from the state before haul's first change.
    pub side_effects: Vec<Change>,
    /// What is not as haul found it, what came along included.
    pub in_force: Vec<Change>,
    /// Whether the link went down for the change. It is up again.
    pub link_bounced: bool,
    /// What the user's commands wrote.
    pub said: Vec<Said>,
}

/// What the user accepts besides what was asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consent {
    /// Changes that come along.
    pub side_effects: bool,
    /// Changes of what is the whole host's, from a network namespace of its own.
    pub global: bool,
}

/// Changes the settings of one host, and puts them back when told to or dropped.
///
/// It belongs to the network namespace of the thread that opened it, and may be used and dropped in any thread.
pub struct Tuner {
    directory: PathBuf,
    access: Access,
    owner: Owner,
    journal: Option<Journal>,
    state: Option<State>,
    /// Opened with the first change: what happens before is nobody's business.
    watch: Option<Watch>,
    on_step: Box<dyn FnMut(&Step) + Send + Sync>,
}

impl std::fmt::Debug for Tuner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tuner")
            .field("device", &self.owner.device)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// What is in force between an apply and the next.
#[derive(Debug, Clone)]
struct State {
    /// What was in force before haul's first change, corrected for what others changed since.
    baseline: BTreeMap<Item, String>,
    /// The device, and everything listed, as the last apply left it.
    left: BTreeMap<Item, Before>,
    /// What was asked for.
    listed: BTreeSet<Item>,
}

/// What a list of settings comes to on a host as it is now.
struct Wish {
    /// Listed items and the state they shall have.
    listed: BTreeMap<Item, String>,
    /// The same with the original state of what is held from earlier and no longer listed.
    target: BTreeMap<Item, String>,
}

impl Tuner {
    /// A tuner for `device` in the calling thread's network namespace, with its journal in `directory` (see
    /// [`journal::directory`]). Nothing is written or changed yet.
    pub fn open(directory: &Path, device: &Link) -> Result<Self> {
        Self::open_with(directory, device, Roots::default())
    }

    /// The same with other trees in the place of `/proc` and `/sys`.
    pub fn open_with(directory: &Path, device: &Link, roots: Roots) -> Result<Self> {
        let access = Access::open(Netns::current()?, roots.clone())?;
        let owner = Owner::this_process(access.netns.id(), access.home.id(), Device::from(device), roots)?;
        let (directory, on_step) = (directory.to_owned(), Box::new(|_: &Step| {}));
        let tuner = Self { directory, access, owner, journal: None, state: None, watch: None, on_step };
        tuner.device()?;
        Ok(tuner)
    }

    /// Tells `on_step` of each step of a change as it has been done.
    pub fn tell_steps(&mut self, on_step: impl FnMut(&Step) + Send + Sync + 'static) {
        self.on_step = Box::new(on_step);
    }

    /// What `settings` would do. Touches nothing; the settings are those for this end.
    pub fn plan(&mut self, settings: &[Setting]) -> Result<Plan> {
        let link = self.device()?;
        let mut now = self.access.now(&link)?;
        let wish = self.wish(settings, &link, &mut now)?;
        let wanted = wanted_features(&wish, &now);
        let foreseen = rules::predict(&now.features, &wanted);
        let mut plan = Plan::default();
        for (item, target) in &wish.target {
            let Some(state) = now.items.get(item) else { continue };
            if !self.access.is(item, &state.wanted, target) {
                let (before, after) = (state.wanted.clone(), target.clone());
                plan.changes.push(Change { item: item.clone(), before, after });
            } else if self.access.is(item, &state.active, target) {
                plan.already.push(item.clone());
            }
            if let Some(feature) = item.as_feature()
                && foreseen.contains(feature) != (target == "on")
                && wish.listed.contains_key(item)
            {
                let reason = rules::reason(feature, target == "on", &foreseen);
                plan.refusals.push(Refusal { item: item.clone(), requested: target.clone(), reason });
            }
        }
        let mut then = now.items.clone();
        for (item, state) in &mut then {
            if let Some(feature) = item.as_feature() {
                super::error::word(foreseen.contains(feature)).clone_into(&mut state.active);
            }
        }
        plan.side_effects = unlisted_changes(&self.baseline(&now.items), &then, &wish.target);
        Ok(plan)
    }

    /// Makes the host what `settings` ask for, and what an earlier apply set and is no longer listed what it was. On an error
    /// the host is as it was before the call, unless the error says otherwise.
    pub fn apply(&mut self, settings: &[Setting], consent: Consent) -> Result<Applied> {
        let desk = Desk::take(&self.directory)?;
        let link = self.device()?;
        let mut now = self.access.now(&link)?;
        let wish = self.wish(settings, &link, &mut now)?;
        self.refuse_global(&wish, consent)?;
        let held = |item: &Item| self.holds().contains_key(item);
        let (fresh, claims): (Vec<_>, Vec<_>) =
            wish.listed.iter().filter(|(item, _)| !held(item)).partition(|(item, target)| {
                now.items.get(*item).is_some_and(|state| !self.access.is(item, &state.wanted, target))
            });
        let before = |item: &Item| Some((item.clone(), now.items.get(item)?.clone()));
        let fresh: BTreeMap<Item, Before> = fresh.into_iter().filter_map(|(item, _)| before(item)).collect();
        let claims: BTreeSet<Item> = claims.into_iter().map(|(item, _)| item.clone()).collect();
        let host = wish.target.keys().any(Item::is_shared);
        desk.refuse_if_held(&self.owner, self.journal.as_ref().map(Journal::path), host, Alive::OrDead)?;

        let baseline = self.baseline(&now.items);
        let mut journal = match self.journal.take() {
            Some(journal) => journal,
            None => desk.create(&self.owner)?,
        };
        // From here on the journal is `self`'s again whatever happens, so that dropping `self` puts back what it holds.
        let recorded = journal.hold(fresh.clone(), claims.clone());
        self.journal = Some(journal);
        let done = recorded.and_then(|()| {
            (self.on_step)(&Step::Recorded);
            self.change_and_prove(&link, &now, &wish, &baseline, consent)
        });
        let done = done.and_then(|(applied, after)| {
            // A driver that changes what was asked for elsewhere is beyond the journal's foresight, not beyond its duty.
            let strays = now.items.iter().filter(|(item, state)| {
                !wish.target.contains_key(*item)
                    && after.get(*item).is_some_and(|after| after.wanted != state.wanted)
                    && !self.holds().contains_key(*item)
            });
            let strays: BTreeMap<Item, Before> =
                strays.map(|(item, state)| (item.clone(), state.clone())).collect();
            if let (false, Some(journal)) = (strays.is_empty(), &mut self.journal) {
                journal.hold(strays, claims)?;
            }
            Ok((applied, after))
        });
        match done {
            Ok((mut applied, left)) => {
                let returned = wish.target.keys().filter(|item| !wish.listed.contains_key(*item));
                let returned: BTreeSet<Item> = returned.cloned().collect();
                if let (false, Some(journal)) = (returned.is_empty(), &mut self.journal) {
                    // A hold that could not be released is put back once more at the end, which changes nothing.
                    let _ = journal.release(&returned);
                    (self.on_step)(&Step::Released);
                }
                let changed = self.holds().iter().filter_map(|(item, before)| {
                    let now = &left.get(item)?.active;
                    let change =
                        || Change { item: item.clone(), before: before.active.clone(), after: now.clone() };
                    (*now != before.active).then(change)
                });
                applied.in_force = changed.chain(applied.side_effects.iter().cloned()).collect();
                applied.in_force.sort();
                applied.in_force.dedup();
                self.state = Some(State { baseline, left, listed: wish.listed.into_keys().collect() });
                self.watch_from_now(&link)?;
                Ok(applied)
            }
            Err(error) => Err(self.undo(&link, &now, &wish, &fresh, error)),
        }
    }

    /// Whether the host is still as the last apply left it, and was all the time since.
    pub fn verify(&mut self) -> Result<()> {
        let Some(State { mut left, listed, .. }) = self.state.clone() else { return Ok(()) };
        // A driver that adapts its moderation to the traffic changes numbers nobody asked for.
        left.retain(|item, _| listed.contains(item) || !matches!(item.0, Kind::Number(..)));
        let link = self.device()?;
        let mut now = self.access.now(&link)?.items;
        self.access.complete(Some(&link), left.keys().filter(|item| is_read_alone(item)), &mut now)?;
        let differences = |of: &dyn Fn(&Before) -> &String| -> Vec<Change> {
            let differing = left.iter().filter_map(|(item, was)| {
                let (before, after) = (of(was).clone(), of(now.get(item)?).clone());
                (before != after).then(|| Change { item: item.clone(), before, after })
            });
            differing.collect()
        };
        let mut changes = differences(&|state| &state.active);
        if changes.is_empty() {
            // Asked for and not in force yet: it will be as soon as something it needs comes back.
            changes = differences(&|state| &state.wanted);
        }
        if !changes.is_empty() {
            return Err(SettingError::Foreign { device: link.name, changes }.into());
        }
        let seen = match &mut self.watch {
            Some(watch) => watch.take()?,
            None => Vec::new(),
        };
        if seen.is_empty() {
            return Ok(());
        }
        let what = seen.into_iter().map(|change| change.text).collect();
        Err(SettingError::Meddled { device: link.name, what }.into())
    }

    /// Puts back everything that was changed, and removes the journal.
    ///
    /// A device that is gone needs nothing. [`SettingError::NotRestored`] keeps the journal for `haul settings restore`.
    pub fn restore(&mut self) -> Result<()> {
        (self.state, self.watch) = (None, None);
        let Some(mut journal) = self.journal.take() else { return Ok(()) };
        // Another haul that reads, changes and reads this device should not see it change in between; but one that
        // takes too long must not keep us from restoring.
        let _desk = Desk::take(&self.directory);
        let device = self.owner.device.name.clone();
        match journal::settle(&self.owner, journal.holds(), Some(&mut self.access), &mut *self.on_step) {
            Outcome::Unneeded { .. } => self.remove(journal),
            Outcome::Restored { unlike, .. } => {
                self.remove(journal)?;
                if unlike.is_empty() {
                    Ok(())
                } else {
                    Err(SettingError::Unlike { device, items: unlike }.into())
                }
            }
            Outcome::Kept { items, problem } => {
                let path = journal.path().to_owned();
                // The problem is in the error already; the file is for who comes later.
                let _ = journal.trouble(problem.clone());
                Err(SettingError::NotRestored { device, items, problem, journal: path }.into())
            }
        }
    }

    /// Leaves everything as it is, and the journal for `haul settings restore`; returns where that is.
    pub fn keep(mut self) -> Result<Option<PathBuf>> {
        let Some(journal) = self.journal.take() else { return Ok(None) };
        let path = journal.path().to_owned();
        journal.keep().map(|()| Some(path))
    }

    /// What it has changed and not yet put back, as it was.
    #[must_use]
    pub fn holds(&self) -> &BTreeMap<Item, Before> {
        static NONE: BTreeMap<Item, Before> = BTreeMap::new();
        self.journal.as_ref().map_or(&NONE, Journal::holds)
    }

    fn remove(&mut self, journal: Journal) -> Result<()> {
        journal.remove()?;
        (self.on_step)(&Step::Removed);
        Ok(())
    }

    /// The device, after making sure that it is the one that was opened.
    fn device(&self) -> Result<Link> {
        let recorded = &self.owner.device;
        let gone = |found: String| {
            HostError::from(SettingError::DeviceGone { device: recorded.name.clone(), found })
        };
        let index = recorded.index;
        match self.access.netns.run(|| link::link_by_index(index))? {
            Err(HostError::NotFound { .. }) => Err(gone(format!("no device has the index {index}"))),
            Err(error) => Err(error),
            Ok(link) => match journal::identify(recorded, &link) {
                Identity::Same => Ok(link),
                Identity::Other => Err(gone(format!("its index {index} belongs to {} now", link.name))),
                Identity::Unsure(_) => {
                    Err(gone(format!("its hardware address was {} and is {}", recorded.mac, link.mac)))
                }
            },
        }
    }

    /// What `settings` come to, and in `now` the state of all of it.
    fn wish(&mut self, settings: &[Setting], link: &Link, now: &mut Now) -> Result<Wish> {
        let mut decided: BTreeMap<Item, (String, &Setting)> = BTreeMap::new();
        for setting in settings {
            for (item, target) in expand(setting, link, now, &mut self.access)? {
                if let Some((earlier, by)) = decided.get(&item)
                    && *earlier != target
                {
                    let (first, second) = (by.to_string(), setting.to_string());
                    return Err(SettingError::Conflict { first, second, item }.into());
                }
                decided.insert(item, (target, setting));
            }
        }
        let listed: BTreeMap<Item, String> =
            decided.into_iter().map(|(item, (target, _))| (item, target)).collect();
        let mut target = listed.clone();
        for (item, before) in self.holds() {
            target.entry(item.clone()).or_insert_with(|| before.wanted.clone());
        }
        let kept = self.state.iter().flat_map(|state| state.left.keys()).filter(|item| is_read_alone(item));
        let more: Vec<Item> = target.keys().chain(kept).cloned().collect();
        self.access.complete(Some(link), &more, &mut now.items)?;
        Ok(Wish { listed, target })
    }

    fn refuse_global(&self, wish: &Wish, consent: Consent) -> Result<()> {
        if consent.global || !self.access.is_private() {
            return Ok(());
        }
        let items: Vec<Item> =
            wish.listed.keys().filter(|item| item.scope() == Scope::Host).cloned().collect();
        if items.is_empty() { Ok(()) } else { Err(SettingError::Global { items }.into()) }
    }

    /// What was in force before haul's first change, with the changes others made since then.
    fn baseline(&self, now: &BTreeMap<Item, Before>) -> BTreeMap<Item, String> {
        let before_haul = |(item, now): (&Item, &Before)| {
            let ours = self
                .state
                .as_ref()
                .and_then(|state| Some((state.baseline.get(item)?, state.left.get(item)?)));
            let state = match ours {
                Some((baseline, left)) if left.active == now.active => baseline.clone(),
                _ => now.active.clone(),
            };
            (item.clone(), state)
        };
        now.iter().map(before_haul).collect()
    }

    /// Makes the change and reads it back. Also returns the device, and everything listed, as it is then.
    fn change_and_prove(
        &mut self,
        link: &Link,
        now: &Now,
        wish: &Wish,
        baseline: &BTreeMap<Item, String>,
        consent: Consent,
    ) -> Result<(Applied, BTreeMap<Item, Before>)> {
        let differs = |(item, target): &(&Item, &String)| {
            now.items.get(*item).is_some_and(|state| !self.access.is(item, &state.wanted, target))
        };
        let to_ask: BTreeMap<Item, String> =
            wish.target.iter().filter(differs).map(|(item, target)| (item.clone(), target.clone())).collect();
        let mut applied = Applied::default();
        let refused = self
            .access
            .write(Some(link), &to_ask, false, &mut applied.said, &mut *self.on_step)
            .map_err(|error| permission(link, &to_ask, error))?;
        if to_ask.keys().any(Item::resets) {
            applied.link_bounced = settled_again(&self.access.netns, link)?;
            (self.on_step)(&Step::Settled);
        }
        let mut after = self.access.now(link)?;
        self.access.complete(
            Some(link),
            now.items.keys().filter(|item| is_read_alone(item)),
            &mut after.items,
        )?;
        (self.on_step)(&Step::ReadBack);
        let refused = self.refusals(wish, &after, &refused);
        if !refused.is_empty() {
            return Err(SettingError::NotTaken { device: link.name.clone(), refused }.into());
        }
        let side_effects = unlisted_changes(baseline, &after.items, &wish.target);
        if !side_effects.is_empty() && !consent.side_effects {
            let device = link.name.clone();
            return Err(SettingError::SideEffects { device, changes: side_effects }.into());
        }
        applied.side_effects = side_effects;
        let changed = wish.target.keys().filter_map(|item| {
            let (before, after) = (&now.items.get(item)?.active, &after.items.get(item)?.active);
            let change = || Change { item: item.clone(), before: before.clone(), after: after.clone() };
            (before != after).then(change)
        });
        applied.changed = changed.collect();
        Ok((applied, after.items))
    }

    fn refusals(&self, wish: &Wish, after: &Now, refused: &BTreeSet<Item>) -> Vec<Refusal> {
        let refusal = |(item, target): (&Item, &String)| {
            let state = after.items.get(item)?;
            // A feature on its way back need only be asked for as before: what it needs may be off by another's hand.
            let listed = wish.listed.contains_key(item);
            let taken = self.access.is(item, &state.wanted, target)
                && (!listed || self.access.is(item, &state.active, target) && !refused.contains(item));
            let reason = match item.as_feature() {
                Some(feature) => rules::reason(feature, target == "on", &after.features.active),
                None => format!("the kernel made it {}", super::item::shown(&state.active)),
            };
            (!taken).then(|| Refusal { item: item.clone(), requested: target.clone(), reason })
        };
        wish.target.iter().filter_map(refusal).collect()
    }

    /// From here on whoever changes the device is somebody else.
    fn watch_from_now(&mut self, link: &Link) -> Result<()> {
        match &mut self.watch {
            Some(watch) => drop(watch.take()?),
            none => *none = Some(self.access.netns.run(|| Watch::open(link.index))??),
        }
        Ok(())
    }

    /// Brings the host back to what it was before this apply, and returns the error to report.
    fn undo(
        &mut self,
        link: &Link,
        now: &Now,
        wish: &Wish,
        fresh: &BTreeMap<Item, Before>,
        error: HostError,
    ) -> HostError {
        if self.journal.is_none() {
            return error;
        }
        if let Err(second) = self.ask_again(link, now, wish) {
            let Some(journal) = &self.journal else { return error };
            let items = journal.holds().keys().cloned().collect();
            let journal = journal.path().to_owned();
            let problem = format!("{error}; and then undoing it failed: {second}");
            return SettingError::NotRestored { device: link.name.clone(), items, problem, journal }.into();
        }
        if let Some(journal) = &mut self.journal {
            // As in apply: a hold too many is harmless.
            let _ = journal.release(&fresh.keys().cloned().collect());
        }
        if self.holds().is_empty()
            && self.state.is_none()
            && let Some(journal) = self.journal.take()
        {
            // What is left then is an empty journal, which the next recovery removes.
            let _ = journal.remove();
        }
        // Our own change and its way back are nobody else's.
        let _ = self.watch.as_mut().map(Watch::take);
        error
    }

    /// Asks for everything that was asked for at `then`, and reads back.
    fn ask_again(&mut self, link: &Link, then: &Now, wish: &Wish) -> Result<()> {
        let ours: Vec<Item> = then
            .items
            .keys()
            .filter(|item| !is_read_alone(item) || wish.target.contains_key(*item))
            .cloned()
            .collect();
        let differing = |access: &mut Access| -> Result<BTreeMap<Item, String>> {
            let mut now = access.now(link)?.items;
            access.complete(Some(link), ours.iter().filter(|item| is_read_alone(item)), &mut now)?;
            let differing = ours.iter().filter_map(|item| {
                let (then, now) = (then.items.get(item)?, now.get(item)?);
                (now.wanted != then.wanted).then(|| (item.clone(), then.wanted.clone()))
            });
            Ok(differing.collect())
        };
        let changes = differing(&mut self.access)?;
        if changes.is_empty() {
            return Ok(());
        }
        self.access.write(Some(link), &changes, true, &mut Vec::new(), &mut *self.on_step)?;
        let left = differing(&mut self.access)?;
        if left.is_empty() {
            return Ok(());
        }
        let what = format!("{} did not go back", super::error::list(&left.into_keys().collect::<Vec<_>>()));
        Err(HostError::Answer { operation: "undo the change of", object: link.name.clone(), what })
    }
}

impl Drop for Tuner {
    fn drop(&mut self) {
        // A failure is in the journal, which is kept then; who wants to see it calls `restore`.
        let _ = self.restore();
    }
}

/// Whether an item is read where it is listed only, and not with the device.
fn is_read_alone(item: &Item) -> bool {
    matches!(item.0, Kind::Device(_) | Kind::Sysctl(_) | Kind::Host(_) | Kind::Hook(..) | Kind::Napi(..))
}

/// The features somebody will have asked for once the wish is granted.
fn wanted_features(wish: &Wish, now: &Now) -> BTreeSet<String> {
    let wanted = |name: &&String| match wish.target.get(&Item::feature(name)) {
        Some(target) => target == "on",
        None => now.features.is_wanted(name),
    };
    now.features.names.iter().filter(wanted).cloned().collect()
}

/// What of the device differs from `before` though no setting in `decided`, or its end, decides it: what goes back goes back whatever
/// others made of it in between.
fn unlisted_changes(
    before: &BTreeMap<Item, String>,
    after: &BTreeMap<Item, Before>,
    decided: &BTreeMap<Item, String>,
) -> Vec<Change> {
    let unlisted = after.iter().filter(|(item, _)| !decided.contains_key(*item) && !is_read_alone(item));
    let changed = unlisted.filter_map(|(item, after)| {
        let before = before.get(item)?;
        let change = || Change { item: item.clone(), before: before.clone(), after: after.active.clone() };
        (*before != after.active).then(change)
    });
    changed.collect()
}

/// Waits for the carrier where there was one; tells whether it went away in between.
fn settled_again(netns: &Netns, link: &Link) -> Result<bool> {
    if !link.running {
        return Ok(false);
    }
    let index = link.index;
    match netns.run(|| link::wait_for_carrier(index, CARRIER_WAIT))? {
        Ok(after) => Ok(after.carrier_changes != link.carrier_changes),
        Err(HostError::Deadline { after, .. }) => {
            Err(SettingError::LinkLost { device: link.name.clone(), after }.into())
        }
        Err(error) => Err(error),
    }
}

fn permission(link: &Link, asked: &BTreeMap<Item, String>, error: HostError) -> HostError {
    match error {
        HostError::Os { source, .. }
            if matches!(source.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::EROFS)) =>
        {
            let what = super::error::list(&asked.keys().collect::<Vec<_>>());
            SettingError::NotPermitted { what, device: link.name.clone(), source }.into()
        }
        other => other,
    }
}
