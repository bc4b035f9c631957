//! Words of softmaxes that are put together from the parts of ranks. In: findings. Out: drafts. Never: detection. Next: `practice.rs`.

use super::super::codes;
use super::Draft;
use crate::infer::practice::pieces::{Apart, Named, What};
use crate::source::{Label, Place};

pub fn apart(mistake: &Apart) -> Draft {
    match mistake {
        Apart::NotReduced { piece, made, other, reduced } => {
            let name = of(piece);
            let (title, primary, help) = match piece.what {
                What::Largest => (
                    format!(
                        "exponentials of different scales are summed over ranks: {name} is the largest of one part"
                    ),
                    "taken off here",
                    "all-reduce it with `ReduceOp.MAX` first",
                ),
                What::Total => (
                    format!("the loss differs by rank: {name} sums the exponentials of one part alone"),
                    "taken for the sum over all parts",
                    "all-reduce it with `ReduceOp.SUM` first",
                ),
                What::Entry => (
                    format!("the loss is right on one rank alone: {name} is zero on all others and never summed"),
                    "taken for the entry of the label",
                    "all-reduce it with `ReduceOp.SUM` first",
                ),
            };
            let mut draft = Draft::new(&codes::NORMALISED_PARTS, title);
            draft.primary = primary.to_string();
            draft.labels.push(label(*made, "of the part that this rank has".to_string()));
            draft.labels.push(label(*reduced, format!("{} is that of all ranks from here", of(other))));
            draft.help.push(help.to_string());
            draft
        }
        Apart::OtherReduction { piece, given, other, reduced } => {
            let name = of(piece);
            let (title, right) = match piece.what {
                What::Largest => (
                    format!(
                        "{name} is not the largest of all parts: `{given}` over ranks, and exponentials take it off"
                    ),
                    "MAX",
                ),
                What::Total => {
                    (format!("{name} is not the sum over all parts: `{given}` over the ranks that have them"), "SUM")
                }
                What::Entry => {
                    (format!("{name} is not the entry of the label: `{given}` over ranks of which one has it"), "SUM")
                }
            };
            let mut draft = Draft::new(&codes::NORMALISED_PARTS, title);
            draft.primary = format!("needs `{right}`");
            draft.labels.push(label(*reduced, format!("{} of the same softmax", of(other))));
            draft.help.push(format!("reduce it with `ReduceOp.{right}`"));
            draft
        }
        Apart::OtherRanks { piece, over, other, others, reduced } => {
            let place = match over.as_slice() {
                [] => "all ranks".to_string(),
                axes => format!("`{}`", axes.join(", ")),
            };
            let others = others.join(", ");
            let title = format!(
                "{} is put together over {place}, and {} of the same softmax over `{others}`",
                of(piece),
                of(other)
            );
            let mut draft = Draft::new(&codes::DEFAULT_GROUP, title);
            draft.primary = format!("over {place}");
            draft.labels.push(label(*reduced, format!("the parts are on the ranks of `{others}`")));
            draft.help.push(format!("give both the group of `{others}`"));
            draft
        }
    }
}

/// The name, or what it is.
fn of(piece: &Named) -> String {
    match (&piece.name, piece.what) {
        (Some(name), _) => format!("`{name}`"),
        (None, What::Largest) => "the largest".to_string(),
        (None, What::Total) => "the sum of exponentials".to_string(),
        (None, What::Entry) => "the entry of the label".to_string(),
    }
}

fn label(place: Place, message: String) -> Label {
    Label { place, message }
}
