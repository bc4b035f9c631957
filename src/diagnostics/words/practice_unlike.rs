//! Words of collectives that are taken for what they are not. In: findings. Out: drafts. Never: detection. Next: `practice.rs`.

use super::super::codes;
use super::Draft;
use crate::infer::practice::found::Unlike;
use crate::source::{Label, Place};

pub fn unlike(mistake: &Unlike) -> Draft {
    match mistake {
        Unlike::InPlace { collective, used } => {
            let title = format!("`{collective}` works in place and returns no tensor, and its result is used as one");
            let mut draft = Draft::new(&codes::LOST_RESULT, title);
            draft.primary = "`None` where it is done at once".to_string();
            draft.labels.push(label(*used, "used as a tensor"));
            draft.help.push("call it as a statement, and go on with the tensor that it was given".to_string());
            draft
        }
        Unlike::Indexed { collective, indexed } => {
            let title = format!("the result of `{collective}` is lost: it is written to what indexing has copied");
            let mut draft = Draft::new(&codes::LOST_RESULT, title);
            draft.primary = "written to the copy".to_string();
            draft.labels.push(label(*indexed, "indexing with positions or a mask copies"));
            draft.help.push("bind the rows to a name, and assign them back afterwards".to_string());
            draft
        }
        Unlike::OthersRows { mask, masked, lookup } => {
            let title = format!(
                "the sum over ranks holds rows that are not meant: those where `{mask}` holds were looked up at position 0"
            );
            let mut draft = Draft::new(&codes::COPIES_SUMMED, title);
            draft.primary = "every rank adds a row for each position of another".to_string();
            draft.labels.push(label(*masked, "positions of other ranks become 0"));
            draft.labels.push(label(*lookup, "and are looked up as such"));
            draft.help.push(format!("set the rows where `{mask}` holds to zero before the sum"));
            draft
        }
        Unlike::ForeignTargets { mask, masked, zeroed } => {
            let title = format!(
                "the backward takes 1 off for targets of other ranks too: nothing in it asks `{mask}`, and their positions are 0 here"
            );
            let mut draft = Draft::new(&codes::NOT_ADJOINT, title);
            draft.primary = "every rank pushes its first entry for the targets of all others".to_string();
            draft.labels.push(label(*masked, "positions of targets of other ranks become 0"));
            draft.labels.push(label(*zeroed, "the forward takes what was looked up there out of its sum"));
            draft.help.push(format!("save `{mask}`, and take off `1.0 - {mask}` in place of 1"));
            draft
        }
    }
}

fn label(place: Place, message: &str) -> Label {
    Label { place, message: message.to_string() }
}
