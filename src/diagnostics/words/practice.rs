//! Words of families 3xx and 6xx that need no types: gradients that nobody reduces, results that are lost. In: findings. Out: drafts.
//! Never: detection. Next: `mod.rs`.

use super::super::codes;
use super::practice_scales::{concerned, labels, scales};
use super::{Draft, Words};
use crate::infer::practice::found::{Practice, Scales};
use crate::source::{Label, Name, Place};

impl Words<'_> {
    pub fn practice(&self, practice: &Practice) -> Draft {
        match practice {
            Practice::LostCopy { collective, method, original } => {
                lost_copy(&self.plain(*original), collective, method, *original)
            }
            Practice::LostComputed { collective, made } => lost_computed(collective, &self.plain(*made)),
            Practice::LostGradients { collective, copy, made } => lost_gradients(collective, copy, *made),
            Practice::OtherPositions { collective, sliced } => {
                let title = format!(
                    "`{collective}` adds different positions: each rank gives the part at the place of its own rank"
                );
                let mut draft = Draft::new(&codes::OTHER_POSITIONS, title);
                draft.primary = "a sum over the ranks by whose number the part was taken".to_string();
                draft.labels.push(Label { place: *sliced, message: "another part on each rank".to_string() });
                draft.help.push("sum the whole value first, and take the part of the result".to_string());
                draft
            }
            Practice::SharedBuffer { owner, buffer, kept } => shared_buffer(owner, buffer, *kept),
            Practice::MarkMisnamed { asked, mark, set } => misnamed(asked, mark, *set),
            Practice::IgnoredSwitch { owner, switch, runs } => {
                let title =
                    format!("`{owner}` never looks at `{switch}`: it communicates in the same way whatever that says");
                let mut draft = Draft::new(&codes::IGNORED_SWITCH, title);
                draft.primary = "taken here".to_string();
                for place in runs {
                    draft.labels.push(Label { place: *place, message: format!("does not depend on `{switch}`") });
                }
                draft.help.push(format!("make it depend on `{switch}`, or remove `{switch}`"));
                draft
            }
            Practice::MarkNeverSet { .. }
            | Practice::MarkNeverAsked { .. }
            | Practice::PartNotMarked { .. }
            | Practice::PartitionNotMarked { .. }
            | Practice::SiblingNotMarked { .. }
            | Practice::PartNotNamed { .. } => self.left_out(practice),
            Practice::Placements(mistake) => self.placements(mistake),
            Practice::Scales(Scales::Factor(mistake)) => super::scale::factor(self.files, mistake),
            Practice::Scales(mistake) => scales(mistake),
            Practice::Backwards(mistake) => super::practice_backwards::backwards(mistake),
            Practice::Membership(mistake) => super::practice_groups::membership(mistake),
            Practice::Lapse(mistake) => super::practice_lapses::lapses(mistake),
            Practice::Apart(mistake) => super::practice_pieces::apart(mistake),
            Practice::Unlike(mistake) => super::practice_unlike::unlike(mistake),
            Practice::Rehearsed(found) => super::rehearsal::rehearsed(found),
            Practice::Slips(mistake) => super::practice_slips::slips(mistake),
            Practice::Unshared(mistake) => super::practice_unshared::unshared(mistake),
            Practice::Omission(mistake) => super::practice_omissions::omissions(mistake),
            Practice::Coming(mistake) => super::practice_coming::coming(mistake),
            Practice::Training(mistake) => super::practice_training::training(mistake),
            Practice::InvertedGuard { .. }
            | Practice::ReadInFlight { .. }
            | Practice::SomeRanks { .. }
            | Practice::SomeOfGroup { .. }
            | Practice::UnusedApply { .. }
            | Practice::LocalCount { .. }
            | Practice::OfThisRank(_)
            | Practice::LateReduction { .. }
            | Practice::GradientCut { .. }
            | Practice::MixedGradient { .. } => Self::calls(practice),
            Practice::UnusedResult { collective } => {
                let title = format!(
                    "the result of `{collective}` is not used: it returns the value and changes nothing in place"
                );
                let mut draft = Draft::new(&codes::LOST_RESULT, title);
                draft.primary = "thrown away".to_string();
                draft.help.push("assign it to the variable that is used afterwards".to_string());
                draft
            }
        }
    }

    /// A parameter or module that the reduction of gradients leaves out.
    fn left_out(&self, practice: &Practice) -> Draft {
        match practice {
            Practice::MarkNeverSet { mark, modules, reducer, missing } => {
                let all: Vec<String> = modules.iter().map(|m| format!("`{m}`")).collect();
                let all = all.join(" and ");
                let title = format!("the gradients of {all} are never summed: nothing marks a parameter with `{mark}`");
                let mut draft = Draft::new(&codes::PARAMETER_NOT_SUMMED, title);
                draft.labels.push(Label {
                    place: *reducer,
                    message: format!("sums the gradients of parameters marked `{mark}`"),
                });
                draft.labels.push(Label { place: *missing, message: "nothing is marked up to here".to_string() });
                draft
                    .help
                    .push(format!("mark their parameters: `setattr(param, {mark}, True)` for each of `parameters()`"));
                draft
            }
            Practice::PartNotMarked { module, marked, part, mark, made } => {
                let title = format!(
                    "the gradient of `{module}.{part}` is not summed: `{module}.{marked}` is marked `{mark}` and it is not"
                );
                let mut draft = Draft::new(&codes::PARAMETER_NOT_SUMMED, title);
                draft.primary = format!("marks `{marked}` alone");
                draft.labels.push(Label { place: *made, message: format!("has `{marked}` and `{part}`") });
                draft.help.push(format!("mark `{module}.{part}` as well, or make the module without it"));
                draft
            }
            Practice::PartitionNotMarked { parameter, mark, axes, other, is_asked, otherwise } => {
                let shown = (*other, *is_asked, *otherwise);
                partition_not_marked((parameter, mark), axes, shown)
            }
            Practice::MarkNeverAsked { mark, axes, reducer, parameters, .. } => {
                let axes = axes.join(", ");
                let who = concerned(parameters).map(|who| format!("the gradients of {who}, marked `{mark}`,"));
                let who = who.unwrap_or_else(|| format!("the gradients marked `{mark}`"));
                let title = format!("{who} are never summed over `{axes}`: nothing asks for the mark");
                let mut draft = Draft::new(&codes::PARAMETER_NOT_SUMMED, title);
                draft.primary = format!("marked for the sum over `{axes}`");
                draft
                    .labels
                    .push(Label { place: *reducer, message: "gradients are summed here, over other axes".to_string() });
                draft.labels.extend(labels(parameters).skip(1));
                draft
                    .help
                    .push(format!("sum the gradients of parameters marked `{mark}` over `{axes}` before the step"));
                draft
            }
            Practice::SiblingNotMarked { module, sibling, mark, marked } => {
                let title = format!(
                    "the gradients of `{module}` are not summed: `{sibling}` is marked `{mark}` and `{module}`, made alike, is not"
                );
                let mut draft = Draft::new(&codes::PARAMETER_NOT_SUMMED, title);
                draft.primary = "not marked".to_string();
                draft.labels.push(Label { place: *marked, message: format!("marks `{sibling}`") });
                draft.help.push(format!("mark `{module}` like `{sibling}`"));
                draft
            }
            Practice::PartNotNamed { module, named, part, made } => {
                let title = format!(
                    "the gradient of `{module}.{part}` is not summed: `{module}.{named}` is taken by name, and nothing takes `{part}`"
                );
                let mut draft = Draft::new(&codes::PARAMETER_NOT_SUMMED, title);
                draft.primary = format!("takes `{named}` alone");
                draft.labels.push(Label { place: *made, message: format!("has `{named}` and `{part}`") });
                draft.help.push(format!("take every parameter of `{module}`, as in `\"{module}.\" in name`"));
                draft
            }
            _ => Draft::new(&codes::INTERNAL_ERROR, "a finding without words".to_string()),
        }
    }
}

fn lost_computed(collective: &Name, computed: &str) -> Draft {
    let title = format!("the result of `{collective}` is lost: it is written to `{computed}`, which nothing keeps");
    let mut draft = Draft::new(&codes::LOST_RESULT, title);
    draft.primary = "every rank goes on with the value it had".to_string();
    draft.help.push(format!("bind it to a name first, and go on with that name: `total = {computed}`"));
    draft
}

fn lost_gradients(collective: &Name, copy: &Name, made: Place) -> Draft {
    let title = format!(
        "the result of `{collective}` is lost: it stays in the copy `{copy}`, and the gradients keep what this rank computed"
    );
    let mut draft = Draft::new(&codes::LOST_RESULT, title);
    draft.primary = "written to the copy".to_string();
    draft.labels.push(Label { place: made, message: "copies gradients".to_string() });
    draft.help.push(format!("write what `{copy}` holds back to the gradients afterwards"));
    draft
}

/// A reduction that asks for a mark by a name that nobody gave.
fn misnamed(asked: &str, mark: &str, set: Place) -> Draft {
    let title = format!("the gradients marked `{mark}` are never summed: the reduction asks for `{asked}`");
    let mut draft = Draft::new(&codes::PARAMETER_NOT_SUMMED, title);
    draft.primary = format!("nothing here sets `{asked}`");
    draft.labels.push(Label { place: set, message: "marked under another name".to_string() });
    draft.help.push(format!("ask for `{mark}`, or mark the parameters with `{asked}`"));
    draft
}

/// A buffer of a pool that is kept beyond the call.
fn shared_buffer(owner: &str, buffer: &str, kept: Place) -> Draft {
    let title =
        format!("`{buffer}` outlives the forward of `{owner}`: it comes from a pool, and the next call overwrites it");
    let mut draft = Draft::new(&codes::SHARED_BUFFER, title);
    draft.primary = "handed out again by the next call".to_string();
    draft.labels.push(Label { place: kept, message: "kept beyond the call here".to_string() });
    draft.help.push(format!("allocate `{buffer}` anew, or use it up inside the forward"));
    draft
}

fn lost_copy(x: &str, collective: &str, method: &str, original: Place) -> Draft {
    let title = format!("the result of `{collective}` is lost: `{x}.{method}()` may be a copy, and nothing keeps it");
    let mut draft = Draft::new(&codes::LOST_RESULT, title);
    draft.primary = "written to the copy".to_string();
    draft.labels.push(Label { place: original, message: "keeps its own value where a copy is made".to_string() });
    draft.help.push(format!("bind it first: `{x} = {x}.{method}()`, then pass `{x}`"));
    draft
}

/// A part that no mark says to be one; what asks for the mark, or where another is marked, and where it is marked otherwise.
fn partition_not_marked(
    (parameter, mark): (&str, &str),
    axes: &[Name],
    (other, is_asked, otherwise): (Place, bool, Option<Place>),
) -> Draft {
    let axes = axes.join(", ");
    let title = format!(
        "`{parameter}` is a part on each rank of `{axes}`, and nothing marks it `{mark}`: its parts are taken for copies"
    );
    let mut draft = Draft::new(&codes::PARTITION_NOT_MARKED, title);
    draft.primary = format!("its size is divided by the number of ranks of `{axes}`");
    let why = if is_asked { "asks for the mark" } else { "another one is marked here" };
    draft.labels.push(Label { place: other, message: why.to_string() });
    let said = |place| Label { place, message: "says something else of it".to_string() };
    draft.labels.extend(otherwise.map(said));
    draft.help.push(format!("mark `{parameter}` as a part; norms of gradients and initialisation go by the mark"));
    draft
}
