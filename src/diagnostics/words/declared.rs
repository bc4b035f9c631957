//! Words for declared shardings. In: a [`Declaration`]. Out: a [`Draft`]. Never: detection. Next: `dtensor.rs`.

use super::Draft;
use crate::diagnostics::codes;
use crate::infer::declared::found::{Declaration, Part};
use crate::infer::declared::layout::Moved;
use crate::ir::annotation::Atom;
use crate::source::{Label, Name, Place};
use crate::types::Axis;

pub fn declaration(mistake: &Declaration) -> Draft {
    match mistake {
        Declaration::Unordered { axes: [a, b], dim } => {
            let title = format!("`{a}` and `{b}` both split dim {dim}, and nothing says which of them is outside");
            let mut draft = Draft::new(&codes::REFUSED_LAYOUT, title);
            draft.help.push(format!(
                "state V on both, and the order in a partition spec: `({a}, {b})` in the place of dim {dim}"
            ));
            draft
        }
        Declaration::WithSpec { axis, dim } => {
            let title = format!("`{axis}` is S({dim}), beside a partition spec that is to say which dims are split");
            let mut draft = Draft::new(&codes::REFUSED_LAYOUT, title);
            draft.help.push(format!("state V on `{axis}`, and name it in the spec in the place of dim {dim}"));
            draft
        }
        Declaration::Contradicts { axis, atom } => {
            let title =
                format!("the partition spec splits a dim over `{axis}`, on which the layout is {}", shown(*atom));
            let mut draft = Draft::new(&codes::REFUSED_LAYOUT, title);
            draft.help.push(format!("state V on `{axis}`, or leave it out of the spec"));
            draft
        }
        Declaration::Twice { axis } => {
            let mut draft = Draft::new(&codes::REFUSED_LAYOUT, format!("the partition spec names `{axis}` twice"));
            draft.help.push("an axis splits one dim, once".to_string());
            draft
        }
        Declaration::Dim { name, axis, dim, rank, layout } => {
            let dims = if *rank == 1 { "1 dim".to_string() } else { format!("{rank} dims") };
            let title = format!("`{name}` has {dims}, and dim {dim} of it is to be split over `{axis}`");
            let mut draft = Draft::new(&codes::DECLARED_SHARDING, title);
            draft.labels.push(Label { place: *layout, message: format!("S({dim}) on `{axis}`") });
            draft.help.push(format!("split a dim from 0 to {}", rank.saturating_sub(1)));
            draft
        }
        Declaration::Move { part, moved, from, to } => between(part, moved, *from, *to),
        Declaration::NoSource { part } => {
            let title = format!("{} has a layout to go to, and none to come from", named(part));
            let mut draft = Draft::new(&codes::LAYOUT_MOVE, title);
            draft
                .notes
                .push("ValueError when the module is called, unless its tensors are distributed ones".to_string());
            draft.help.push("state the source as well".to_string());
            draft
        }
        Declaration::NoResult { argument } => {
            let title = format!("a region of local tensors without `{argument}`: nothing says what its result is");
            let mut draft = Draft::new(&codes::DECLARED_SHARDING, title);
            draft.help.push(format!("state `{argument}`"));
            draft
        }
        Declaration::Undeclared { class, name, made } => {
            let title = format!("`{class}` has the parameter `{name}`, of which its sharding says nothing");
            let mut draft = Draft::new(&codes::DECLARED_SHARDING, title);
            draft.labels.push(Label { place: *made, message: "made here".to_string() });
            draft.notes.push("ValueError when the module is made parallel".to_string());
            draft.help.push(format!("state a layout of `{name}`, R on every axis if it is whole"));
            draft
        }
        Declaration::UndeclaredInput { class, name } => {
            let whose = class.as_ref().map_or("the module".to_string(), |class| format!("`{class}`"));
            let title = format!("{whose} runs on local tensors, and no layout is stated of its input `{name}`");
            let mut draft = Draft::new(&codes::DECLARED_SHARDING, title);
            draft.notes.push("AssertionError when the module is made parallel".to_string());
            draft.help.push(format!("state a layout of `{name}`"));
            draft
        }
        Declaration::NoState { class, name, near } => absent(class, name, near.as_ref(), "parameter or buffer"),
        Declaration::NoInput { class, name, near } => absent(class, name, near.as_ref(), "input"),
    }
}

fn absent(class: &Name, name: &Name, near: Option<&Name>, what: &str) -> Draft {
    let title = format!("a layout of `{name}`, and `{class}` has no such {what}");
    let mut draft = Draft::new(&codes::UNUSED_LAYOUT, title);
    draft.notes.push("nothing reads this layout".to_string());
    draft.help.extend(near.map(|near| format!("there is `{near}`")));
    draft
}

fn between(part: &Part, moved: &Moved, from: Place, to: Place) -> Draft {
    let what = named(part);
    let (code, title, help) = match moved {
        Moved::Axes => (
            &codes::DECLARED_SHARDING,
            format!("{what} goes from a layout to one over other axes"),
            "state the same axes in both".to_string(),
        ),
        Moved::Many(axes) => (
            &codes::LAYOUT_MOVE,
            format!("{what} changes on {} at once, and one collective changes one axis", listed(axes)),
            "change one axis here, and the others at another boundary or by an explicit collective".to_string(),
        ),
        Moved::Varying(axis) => (
            &codes::LAYOUT_MOVE,
            format!("{what} changes on `{axis}`, on which it is V on one side: no collective is known to do that"),
            "state how it is split there, or write the collective".to_string(),
        ),
        Moved::Order(dim) => (
            &codes::LAYOUT_MOVE,
            format!("{what} changes the order of the axes that split dim {dim}"),
            "add or remove the innermost axis only".to_string(),
        ),
    };
    let mut draft = Draft::new(code, title);
    draft.labels.push(Label { place: from, message: "from this layout".to_string() });
    draft.labels.push(Label { place: to, message: "to this one".to_string() });
    if matches!(moved, Moved::Axes) {
        draft.notes.push("an exception when the module is made parallel, or called".to_string());
    } else {
        draft
            .notes
            .push("ValueError when the module is made parallel, unless its tensors are distributed ones".to_string());
    }
    draft.help.push(help);
    draft
}

fn named(part: &Part) -> String {
    match part {
        Part::State(name) => format!("`{name}`"),
        Part::Input(name) => format!("the input `{name}`"),
        Part::Output => "the output".to_string(),
    }
}

fn listed(axes: &[Axis]) -> String {
    axes.iter().map(|a| format!("`{a}`")).collect::<Vec<_>>().join(" and ")
}

fn shown(atom: Atom) -> String {
    match atom {
        Atom::Replicate => "R".to_string(),
        Atom::Invariant => "I".to_string(),
        Atom::Varying => "V".to_string(),
        Atom::Partial => "P".to_string(),
        Atom::Shard(dim) => format!("S({dim})"),
    }
}
