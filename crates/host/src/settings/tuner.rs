//! Applies settings to one device, proves that they took, and puts back what was there.
//!
//! ```text
//!   apply:   take the directory's lock · is it still the device? · read features · resolve settings
//!            refuse what another haul holds · journal what will change (fsync)
//!            change · wait for the carrier · read back
//!              not as asked, or more than asked? -> undo this apply, forget its journal lines, error
//!            settings of an earlier apply that are no longer listed go back in the same change
//!   verify:  read back; anything not as apply left it is somebody else's doing
//!   restore: ask for what was asked for before, read back, remove the journal
//! ```
//!
//! Side effects are judged against the state before the first change and not against the last arm's: what an earlier
//! arm dragged along and this one brings back is no side effect.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{FeatureChange, Refusal, Setting, SettingError, resolve, rules};
use crate::error::{HostError, Result};
use crate::ethtool::{Ethtool, Features, SetReply};
use crate::journal::{self, Before, Desk, Device, Identity, Journal, Outcome, Owner};
use crate::link::{self, Link};
use crate::netns::Netns;

/// NICs that reset on a change of features train their link anew; 10GBASE-T takes about 6 s for that.
const CARRIER_WAIT: Duration = Duration::from_secs(15);

/// What a list of settings would do to a device as it is now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Features whose requested state would change, those that return to their original state included.
    pub changes: Vec<FeatureChange>,
    /// Listed features that are as asked already.
    pub already: Vec<String>,
    /// Listed features the kernel is expected not to take.
    pub refusals: Vec<Refusal>,
    /// Changes nobody listed that are expected to come along.
    pub side_effects: Vec<FeatureChange>,
}

/// What a list of settings did to a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// Changes of state that were asked for, those back to the original state included.
    pub changed: Vec<FeatureChange>,
    /// What else differs from the state before haul's first change.
    pub side_effects: Vec<FeatureChange>,
    /// The device now.
    pub features_after: Features,
    /// Whether the link went down for the change. It is up again.
    pub link_bounced: bool,
}

/// Changes the features of one device, and puts them back when told to or dropped.
///
/// It belongs to the network namespace of the thread that opened it, and may be used and dropped in any thread.
#[derive(Debug)]
pub struct Tuner {
    directory: PathBuf,
    netns: Netns,
    ethtool: Ethtool,
    owner: Owner,
    journal: Option<Journal>,
    state: Option<State>,
}

/// What is in force between an apply and the next.
#[derive(Debug, Clone)]
struct State {
    /// Features in force before haul's first change, corrected for what others changed since.
    baseline: BTreeSet<String>,
    /// The device as the last apply left it.
    left: Features,
}

/// What a list of settings comes to on a device as it is now.
struct Wish {
    /// Listed features and the state they shall have.
    listed: BTreeMap<String, bool>,
    /// The same with the original state of features held earlier and no longer listed.
    target: BTreeMap<String, bool>,
    /// What somebody will have asked for then.
    wanted: BTreeSet<String>,
}

impl Tuner {
    /// A tuner for `device` in the calling thread's network namespace, with its journal in `directory` (see
    /// [`journal::directory`]). Nothing is written or changed yet.
    pub fn open(directory: &Path, device: &Link) -> Result<Self> {
        let netns = Netns::current()?;
        let owner = Owner::this_process(netns.id(), Device::from(device))?;
        let ethtool = Ethtool::open()?;
        let tuner =
            Self { directory: directory.to_owned(), netns, ethtool, owner, journal: None, state: None };
        tuner.device()?;
        Ok(tuner)
    }

    /// What `settings` would do. Touches nothing; the settings are those for this end.
    pub fn plan(&mut self, settings: &[Setting]) -> Result<Plan> {
        let link = self.device()?;
        let now = self.ethtool.features(link.index)?;
        let wish = self.wish(settings, &now)?;
        let foreseen = rules::predict(&now, &wish.wanted);
        let change = |feature: &String, before: bool, after: bool| FeatureChange {
            feature: feature.clone(),
            before,
            after,
        };
        let mut plan = Plan::default();
        for (feature, &on) in &wish.target {
            if now.is_wanted(feature) != on {
                plan.changes.push(change(feature, !on, on));
            } else if now.is_active(feature) == on {
                plan.already.push(feature.clone());
            }
            if foreseen.contains(feature) != on && wish.listed.contains_key(feature) {
                let reason = rules::reason(feature, on, &foreseen);
                plan.refusals.push(Refusal { feature: feature.clone(), requested: on, reason });
            }
        }
        plan.side_effects = unlisted_changes(&self.baseline(&now), &foreseen, &now.names, &wish.listed);
        Ok(plan)
    }

    /// Makes the features what `settings` ask for, and those of an earlier apply that are no longer listed what they
    /// were. On an error the device is as it was before the call, unless the error says otherwise.
    pub fn apply(&mut self, settings: &[Setting], allow_side_effects: bool) -> Result<Applied> {
        let desk = Desk::take(&self.directory)?;
        let link = self.device()?;
        let now = self.ethtool.features(link.index)?;
        let wish = self.wish(settings, &now)?;
        let held = |feature: &String| self.holds().contains_key(feature);
        let before =
            |feature: &str| Before { wanted: now.is_wanted(feature), active: now.is_active(feature) };
        let (fresh, claims): (Vec<_>, Vec<_>) = wish
            .listed
            .iter()
            .filter(|(feature, _)| !held(feature))
            .partition(|(feature, on)| now.is_wanted(feature) != **on);
        let fresh: BTreeMap<String, Before> =
            fresh.into_iter().map(|(feature, _)| (feature.clone(), before(feature))).collect();
        let claims: BTreeSet<String> = claims.into_iter().map(|(feature, _)| feature.clone()).collect();
        desk.refuse_if_held(&self.owner, self.journal.as_ref(), &wish.target.keys().cloned().collect())?;

        let baseline = self.baseline(&now);
        let mut journal = match self.journal.take() {
            Some(journal) => journal,
            None => desk.create(&self.owner)?,
        };
        // From here on the journal is `self`'s again whatever happens, so that dropping `self` puts back what it holds.
        let recorded = journal.hold(fresh.clone(), claims.clone());
        let journal = self.journal.insert(journal);
        let done = match recorded {
            Ok(()) => change_and_prove(
                &mut self.ethtool,
                &self.netns,
                &link,
                &now,
                &wish,
                &baseline,
                allow_side_effects,
            )
            .and_then(|applied| {
                // A driver that changes what was asked for elsewhere is beyond the journal's foresight, not beyond
                // its duty.
                let after = &applied.features_after;
                let strays = now.names.iter().filter(|name| {
                    !wish.target.contains_key(*name) && after.is_wanted(name) != now.is_wanted(name)
                });
                let strays: BTreeMap<_, _> = strays.map(|name| (name.clone(), before(name))).collect();
                if strays.is_empty() { Ok(applied) } else { journal.hold(strays, claims).map(|()| applied) }
            }),
            Err(error) => Err(error),
        };
        match done {
            Ok(applied) => {
                let returned = wish
                    .target
                    .keys()
                    .filter(|feature| !wish.listed.contains_key(*feature))
                    .cloned()
                    .collect();
                // A hold that could not be released is put back once more at the end, which changes nothing.
                let _ = journal.release(&returned);
                self.state = Some(State { baseline, left: applied.features_after.clone() });
                Ok(applied)
            }
            Err(error) => Err(self.undo(&link, &now, &fresh, error)),
        }
    }

    /// Whether the device is still as the last apply left it.
    pub fn verify(&mut self) -> Result<()> {
        let Some(State { left, .. }) = self.state.clone() else { return Ok(()) };
        let link = self.device()?;
        let now = self.ethtool.features(link.index)?;
        let differences = |was: &dyn Fn(&str) -> bool, is: &dyn Fn(&str) -> bool| -> Vec<FeatureChange> {
            let differing = left.names.iter().filter(|name| was(name) != is(name));
            differing
                .map(|name| FeatureChange { feature: name.clone(), before: was(name), after: is(name) })
                .collect()
        };
        let mut changes = differences(&|name| left.is_active(name), &|name| now.is_active(name));
        if changes.is_empty() {
            // Asked for and not in force yet: it will be as soon as something it needs comes back.
            changes = differences(&|name| left.is_wanted(name), &|name| now.is_wanted(name));
        }
        if changes.is_empty() {
            Ok(())
        } else {
            Err(SettingError::Foreign { device: link.name, changes }.into())
        }
    }

    /// Puts back everything that was changed, and removes the journal.
    ///
    /// A device that is gone needs nothing. [`SettingError::NotRestored`] keeps the journal for `haul settings restore`.
    pub fn restore(&mut self) -> Result<()> {
        self.state = None;
        let Some(mut journal) = self.journal.take() else { return Ok(()) };
        // Another haul that reads, changes and reads this device should not see it change in between; but one that
        // takes too long must not keep us from restoring.
        let _desk = Desk::take(&self.directory);
        let device = self.owner.device.name.clone();
        match journal::settle(&self.owner, journal.holds(), Some(&self.netns)) {
            Outcome::Unneeded { .. } => journal.remove(),
            Outcome::Restored { unlike, .. } => {
                journal.remove()?;
                if unlike.is_empty() {
                    Ok(())
                } else {
                    Err(SettingError::Unlike { device, features: unlike }.into())
                }
            }
            Outcome::Kept { features, problem } => {
                let path = journal.path().to_owned();
                // The problem is in the error already; the file is for who comes later.
                let _ = journal.trouble(problem.clone());
                Err(SettingError::NotRestored { device, features, problem, journal: path }.into())
            }
        }
    }

    fn holds(&self) -> &BTreeMap<String, Before> {
        static NONE: BTreeMap<String, Before> = BTreeMap::new();
        self.journal.as_ref().map_or(&NONE, Journal::holds)
    }

    /// The device, after making sure that it is the one that was opened.
    fn device(&self) -> Result<Link> {
        let recorded = &self.owner.device;
        let gone = |found: String| {
            HostError::from(SettingError::DeviceGone { device: recorded.name.clone(), found })
        };
        let index = recorded.index;
        match self.netns.run(|| link::link_by_index(index))? {
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

    fn wish(&self, settings: &[Setting], now: &Features) -> Result<Wish> {
        let device = &self.owner.device.name;
        let mut decided: BTreeMap<String, &Setting> = BTreeMap::new();
        for setting in settings {
            for feature in resolve(setting, device, now)? {
                if let Some(earlier) = decided.get(&feature).filter(|earlier| earlier.on != setting.on) {
                    let (first, second) = (earlier.to_string(), setting.to_string());
                    return Err(SettingError::Conflict { first, second, feature }.into());
                }
                decided.insert(feature, setting);
            }
        }
        let listed: BTreeMap<String, bool> =
            decided.into_iter().map(|(feature, setting)| (feature, setting.on)).collect();
        let mut target = listed.clone();
        for (feature, before) in self.holds() {
            target.entry(feature.clone()).or_insert(before.wanted);
        }
        let wanted = |name: &&String| target.get(*name).copied().unwrap_or_else(|| now.is_wanted(name));
        let wanted = now.names.iter().filter(wanted).cloned().collect();
        Ok(Wish { listed, target, wanted })
    }

    /// The features in force before haul's first change, with the changes others made since then.
    fn baseline(&self, now: &Features) -> BTreeSet<String> {
        let Some(State { baseline, left }) = &self.state else { return now.active.clone() };
        let before_haul = |name: &&String| {
            let others_changed = now.is_active(name) != left.is_active(name);
            if others_changed { now.is_active(name) } else { baseline.contains(*name) }
        };
        now.names.iter().filter(before_haul).cloned().collect()
    }

    /// Brings the device back to what it was before this apply, and returns the error to report.
    fn undo(
        &mut self,
        link: &Link,
        now: &Features,
        fresh: &BTreeMap<String, Before>,
        error: HostError,
    ) -> HostError {
        let Some(journal) = &mut self.journal else { return error };
        if let Err(second) = ask_again(&mut self.ethtool, link, now) {
            let features = journal.holds().keys().cloned().collect();
            let journal = journal.path().to_owned();
            let problem = format!("{error}; and then undoing it failed: {second}");
            return SettingError::NotRestored { device: link.name.clone(), features, problem, journal }
                .into();
        }
        // As in apply: a hold too many is harmless.
        let _ = journal.release(&fresh.keys().cloned().collect());
        if journal.holds().is_empty()
            && self.state.is_none()
            && let Some(journal) = self.journal.take()
        {
            // What is left then is an empty journal, which the next recovery removes.
            let _ = journal.remove();
        }
        error
    }
}

impl Drop for Tuner {
    fn drop(&mut self) {
        // A failure is in the journal, which is kept then; who wants to see it calls `restore`.
        let _ = self.restore();
    }
}

/// Makes the change and reads it back.
fn change_and_prove(
    ethtool: &mut Ethtool,
    netns: &Netns,
    link: &Link,
    now: &Features,
    wish: &Wish,
    baseline: &BTreeSet<String>,
    allow_side_effects: bool,
) -> Result<Applied> {
    let to_ask: Vec<(&str, bool)> = wish
        .target
        .iter()
        .filter(|(feature, on)| now.is_wanted(feature) != **on)
        .map(|(feature, on)| (feature.as_str(), *on))
        .collect();
    let (reply, link_bounced) = if to_ask.is_empty() {
        (SetReply::default(), false)
    } else {
        let reply =
            ethtool.set_wanted(link.index, &link.name, &to_ask).map_err(|error| permission(link, error))?;
        (reply, settled_again(netns, link)?)
    };
    let after = ethtool.features(link.index)?;
    let refused: Vec<Refusal> = wish
        .target
        .iter()
        .filter(|(feature, on)| {
            // A feature on its way back need only be asked for as before: what it needs may be off by another's hand.
            let listed = wish.listed.contains_key(*feature);
            after.is_wanted(feature) != **on
                || listed && (after.is_active(feature) != **on || reply.refused.contains_key(*feature))
        })
        .map(|(feature, &on)| {
            let reason = rules::reason(feature, on, &after.active);
            Refusal { feature: feature.clone(), requested: on, reason }
        })
        .collect();
    if !refused.is_empty() {
        return Err(SettingError::NotTaken { device: link.name.clone(), refused }.into());
    }
    let side_effects = unlisted_changes(baseline, &after.active, &now.names, &wish.listed);
    if !side_effects.is_empty() && !allow_side_effects {
        return Err(SettingError::SideEffects { device: link.name.clone(), changes: side_effects }.into());
    }
    let changed = wish
        .target
        .keys()
        .filter(|feature| now.is_active(feature) != after.is_active(feature))
        .map(|feature| FeatureChange {
            feature: feature.clone(),
            before: now.is_active(feature),
            after: after.is_active(feature),
        })
        .collect();
    Ok(Applied { changed, side_effects, features_after: after, link_bounced })
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

/// Asks for everything that was asked for at `then`, and reads back.
fn ask_again(ethtool: &mut Ethtool, link: &Link, then: &Features) -> Result<()> {
    let differing = |now: &Features| -> Vec<(String, bool)> {
        let names = then.names.iter().filter(|name| now.is_wanted(name) != then.is_wanted(name));
        names.map(|name| (name.clone(), then.is_wanted(name))).collect()
    };
    let changes = differing(&ethtool.features(link.index)?);
    if changes.is_empty() {
        return Ok(());
    }
    let changes: Vec<(&str, bool)> = changes.iter().map(|(name, on)| (name.as_str(), *on)).collect();
    ethtool.set_wanted(link.index, &link.name, &changes)?;
    let left: Vec<String> =
        differing(&ethtool.features(link.index)?).into_iter().map(|(name, _)| name).collect();
    if left.is_empty() {
        return Ok(());
    }
    let what = format!("{} did not go back", left.join(", "));
    Err(HostError::Answer { operation: "undo the change of", object: link.name.clone(), what })
}

/// Features whose state differs from `before` though no setting in `listed` decides them.
fn unlisted_changes(
    before: &BTreeSet<String>,
    after: &BTreeSet<String>,
    names: &[String],
    listed: &BTreeMap<String, bool>,
) -> Vec<FeatureChange> {
    names
        .iter()
        .filter(|name| !listed.contains_key(*name) && before.contains(*name) != after.contains(*name))
        .map(|name| FeatureChange {
            feature: name.clone(),
            before: before.contains(name),
            after: after.contains(name),
        })
        .collect()
}

fn permission(link: &Link, error: HostError) -> HostError {
    match error {
        HostError::Os { source, .. } if matches!(source.raw_os_error(), Some(libc::EPERM | libc::EACCES)) => {
            SettingError::NotPermitted { device: link.name.clone(), source }.into()
        }
        other => other,
    }
}
