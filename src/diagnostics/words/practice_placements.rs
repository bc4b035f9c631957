//! Words of placements of distributed tensors: gradients, numbers of placements, dims. In: findings. Out: drafts.
//! Never: detection. Next: `practice.rs`.

use super::super::codes;
use super::{Draft, Words};
use crate::infer::practice::found::Placements;
use crate::source::{Label, Place};

fn own_rows(function: &str, value: &str, wrapped: Place) -> Draft {
    let title = format!("`{function}` mixes the rows of a matrix, and is given those of `{value}` that this rank has");
    let mut draft = Draft::new(&codes::FALSE_PLACEMENT, title);
    draft.primary = "of the part of this rank alone".to_string();
    draft.labels.push(Label { place: wrapped, message: "taken for a part of what it makes of the whole".to_string() });
    draft.help.push(format!("give it `{value}.full_tensor()`, and distribute what comes out"));
    draft
}

fn labelled(gradient: &str, reference: &str, kept: Place, taken: Place) -> Draft {
    let title = format!(
        "local parts of `{gradient}` are wrapped with the placements of `{reference}`: where its gradient is a pending sum, nothing sums it"
    );
    let mut draft = Draft::new(&codes::FALSE_PLACEMENT, title);
    draft.primary = "believed, whatever the parts are".to_string();
    draft.labels.push(Label { place: kept, message: format!("the placements of `{reference}`") });
    let message = format!("the local part of `{gradient}`, whose placements may be others");
    draft.labels.push(Label { place: taken, message });
    draft.help.push(format!("take `{gradient}.placements`, or redistribute `{gradient}` to these first"));
    draft
}

impl Words<'_> {
    pub fn placements(&self, mistake: &Placements) -> Draft {
        match mistake {
            Placements::BareLocal { method, weight, meets, evidence } => {
                self.bare_local(method, weight, *meets, *evidence)
            }
            Placements::PartOut { method, value, out } => {
                let mut draft = self.bare_local(method, value, *out, None);
                draft.primary = "each rank's gradient of it is a part, and is taken for the whole".to_string();
                if let Some(label) = draft.labels.first_mut() {
                    label.message = "what each rank makes of it is one part of a sum".to_string();
                }
                draft
            }
            Placements::PackedCut { parameter, split, filled } => packed_cut(parameter, *split, *filled),
            Placements::ViewsApart { parts, joined, apart } => views_apart(*parts, *joined, *apart),
            Placements::WideBuffer { collective, buffer, dim, wider } => wide_buffer(collective, buffer, dim, *wider),
            Placements::NarrowBuffer { collective, buffer, dim, narrower } => {
                narrow_buffer(collective, buffer, dim, *narrower)
            }
            Placements::OwnRows { function, value, wrapped } => own_rows(function, value, *wrapped),
            Placements::CutLocal { weight, how, made, meets } => cut_local(weight, how, *made, *meets),
            Placements::LabelledAs { gradient, reference, kept, taken } => labelled(gradient, reference, *kept, *taken),
            Placements::RegionGradient { conditional } => region_gradient(*conditional),
            Placements::CompleteGradient { dim } => complete_gradient(*dim),
            Placements::StyleGradient { style, module, parameter, returns } => {
                let title = format!(
                    "the gradient of `{module}` is not summed: `{style}` returns local scores, and without `{parameter}` takes their gradient for complete"
                );
                let mut draft = Draft::new(&codes::GRADIENT_PLACEMENT, title);
                draft.primary = format!("`{parameter}` is `None`");
                draft
                    .labels
                    .push(Label { place: *returns, message: "the gradient is placed as the output is".to_string() });
                draft.notes.push(
                    "each rank uses the scores for its own tokens or experts, so each has one part of their gradient"
                        .to_string(),
                );
                draft.help.push(format!("pass `{parameter}=(Partial(),)`"));
                draft
            }
            Placements::Count { api, given, dims, why } => {
                let (some, many) = (plural(*given, "placement"), plural(*dims, "dim"));
                let mut draft =
                    Draft::new(&codes::PLACEMENT_COUNT, format!("`{api}` gets {some} for a mesh of {many}"));
                draft.primary = format!("{some}, {many}");
                draft.labels.extend(why.map(|place| Label { place, message: format!("the mesh has {many}") }));
                draft
                    .help
                    .push("one placement for each mesh dim: `Replicate()` on those that change nothing".to_string());
                draft
            }
            Placements::OnOtherMesh { model, by, splits, sharded } => {
                let title = format!(
                    "`{splits}` cannot split `{model}` any more: `{by}` has put its parameters on another mesh before"
                );
                let mut draft = Draft::new(&codes::TWO_MESHES, title);
                draft.primary = "a distributed tensor is not distributed over another mesh".to_string();
                draft.labels.push(Label { place: *sharded, message: "makes distributed tensors of them".to_string() });
                draft.help.push(format!("call `{splits}` first, and `{by}` after it"));
                draft
            }
            Placements::StyleInput { input, partial } => style_input(input, *partial),
            Placements::LocalHead { head, context } => local_head(head, *context),
            Placements::NormKept { norm, source, style, made } => norm_kept(norm, source, style, *made),
            Placements::ShardDim { dim, sequence, why } => {
                let title = format!("dim {dim} is taken for the sharded one, and dim {sequence} is the sequence");
                let mut draft = Draft::new(&codes::SHARD_DIM, title);
                draft.primary = format!("dim {dim}");
                draft
                    .labels
                    .extend(why.map(|place| Label { place, message: format!("dim {sequence} is the sequence") }));
                draft.help.push(format!("use dim {sequence}, the dim along which ranks split the sequence"));
                draft
            }
        }
    }

    fn bare_local(&self, method: &str, weight: &str, meets: Place, evidence: Option<Place>) -> Draft {
        let title = format!(
            "the gradient of `{weight}` is not summed: `{method}()` without `grad_placements` takes it for complete on each rank"
        );
        let mut draft = Draft::new(&codes::GRADIENT_PLACEMENT, title);
        draft.primary = "its gradient is a part, from the data of this rank".to_string();
        draft.labels.push(Label { place: meets, message: "meets values of this rank".to_string() });
        if let Some(place) = evidence {
            draft.labels.push(Label { place, message: "says so".to_string() });
        }
        draft.help.push(match method {
            "full_tensor" => format!("`{weight}.full_tensor(grad_placements=[Partial()] * {weight}.device_mesh.ndim)`, or `Partial(\"avg\")` where gradients are averaged"),
            _ => "`to_local(grad_placements=[...])` with `Partial()` where the weight is replicated".to_string(),
        });
        draft
    }
}

fn style_input(input: &str, partial: Place) -> Draft {
    let title = format!(
        "the gradient of `{input}` is not summed: `to_local()` without `grad_placements` takes it for complete on each rank"
    );
    let mut draft = Draft::new(&codes::GRADIENT_PLACEMENT, title);
    draft.primary = "replicated, so its gradient is taken for replicated too".to_string();
    draft.labels.push(Label { place: partial, message: "each rank computes a term of the output".to_string() });
    draft.notes.push("what each rank computes from the whole input gives the input a part of its gradient".to_string());
    draft.help.push("`to_local(grad_placements=(Partial(),))`".to_string());
    draft
}

fn local_head(head: &str, context: Option<Place>) -> Draft {
    let title = format!(
        "the loss takes the part of the vocabulary that a rank has for the whole: `{head}` gives a plain tensor, and `loss_parallel` works on distributed ones"
    );
    let mut draft = Draft::new(&codes::PLAN_LAYOUTS, title);
    draft.primary = "split over the vocabulary, and local".to_string();
    let message = || "changes losses of distributed tensors alone".to_string();
    draft.labels.extend(context.map(|place| Label { place, message: message() }));
    draft.help.push("`use_local_output=False` where the loss is parallel".to_string());
    draft
}

fn norm_kept(norm: &str, source: &str, style: &str, made: Place) -> Draft {
    let title =
        format!("the gradient of `{norm}` is not summed: `{style}` takes the heads that a rank has for replicated");
    let mut draft = Draft::new(&codes::GRADIENT_PLACEMENT, title);
    draft.primary = format!("behind `{source}`, which gives each rank its own heads");
    draft.labels.push(Label { place: made, message: "whatever comes is taken for equal on all ranks".to_string() });
    draft.notes.push("each rank has a part of the gradient of the weight, from its own heads".to_string());
    draft.help.push(
        "a style that shards the input by heads, as `SequenceParallel(sequence_dim=2, use_local_output=True)`"
            .to_string(),
    );
    draft
}

fn region_gradient(conditional: bool) -> Draft {
    let when = if conditional { " under a condition" } else { "" };
    let title = format!(
        "gradients of replicated inputs of `local_map` are not summed: without `in_grad_placements`{when} they are taken for replicated"
    );
    let mut draft = Draft::new(&codes::GRADIENT_PLACEMENT, title);
    draft.primary = match conditional {
        true => "`None` in one configuration: the placements of the inputs are used".to_string(),
        false => "no `in_grad_placements`: the placements of the inputs are used".to_string(),
    };
    draft.notes.push(
        "each rank computes its own part of the output from the replicated input, so it has one part of the gradient"
            .to_string(),
    );
    draft.help.push(
        "pass `in_grad_placements` with `Partial()` for each replicated input, in every configuration".to_string(),
    );
    draft
}

/// A weight whose local part autograd does not see.
fn cut_local(weight: &str, how: &str, made: Place, meets: Place) -> Draft {
    let title = format!("no gradient reaches `{weight}`: `{how}` leaves autograd behind");
    let mut draft = Draft::new(&codes::GRADIENT_CUT, title);
    draft.primary = "its local part, without a way back".to_string();
    draft.labels.push(Label { place: made, message: "a parameter".to_string() });
    draft.labels.push(Label { place: meets, message: "meets activations here".to_string() });
    draft.help.push(format!("`{weight}.to_local()`, which passes gradients on"));
    draft
}

/// Gradients of a replicated input of a region that are given as complete.
fn complete_gradient(dim: usize) -> Draft {
    let title = format!(
        "`local_map` takes the gradient of a replicated input for complete along dim {dim} of the mesh, where each rank has a part of it"
    );
    let mut draft = Draft::new(&codes::GRADIENT_PLACEMENT, title);
    draft.primary = "`Replicate()`: this rank's part is taken for the whole".to_string();
    draft.notes.push(format!(
        "along dim {dim} each rank works on its own part of another input, or its output is one term of a sum: what it finds for the gradient is one term too"
    ));
    draft.help.push(format!("write `Partial()` for dim {dim}"));
    draft
}

fn plural(n: usize, word: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{n} {word}{s}")
}

/// A weight of several parts that is cut as one.
fn views_apart(parts: usize, joined: Place, apart: Place) -> Draft {
    let title = "the views of the ranks stand mixed: each rank's block holds all of them, and they are taken apart as if each stood whole";
    let mut draft = Draft::new(&codes::SHARDS_APART, title.to_string());
    draft.primary = "the blocks of the ranks, one behind the other".to_string();
    draft.labels.push(Label { place: joined, message: format!("puts {parts} views behind one another") });
    draft.labels.push(Label { place: apart, message: "takes rows of other views for those of one".to_string() });
    draft.help.push("gather each view for itself, and put them together then".to_string());
    draft
}

/// A dim as it is written: a number, or the name of a parameter.
fn along(dim: &str) -> String {
    match dim.parse::<i64>() {
        Ok(-1) => "its last dim".to_string(),
        Ok(_) => format!("dim {dim}"),
        Err(_) => format!("dim `{dim}`"),
    }
}

/// A buffer that is smaller in a dim along which nothing is cut.
fn narrow_buffer(collective: &str, buffer: &str, dim: &str, narrower: Place) -> Draft {
    let along = along(dim);
    let title = format!(
        "`{collective}` gives each rank a run of what lies in memory, cut along dim 0, and `{buffer}` is smaller in {along}: a rank gets rows of others in place of its part of each"
    );
    let mut draft = Draft::new(&codes::SHARDS_APART, title);
    draft.primary = "cuts along dim 0, whatever the sizes are".to_string();
    draft
        .labels
        .push(Label { place: narrower, message: format!("as many times smaller in {along} as there are ranks") });
    draft.help.push(format!("move {along} to the front first, or give `reduce_scatter` the chunks along {along}"));
    draft
}

/// A buffer that is larger in a dim along which no parts come.
fn wide_buffer(collective: &str, buffer: &str, dim: &str, wider: Place) -> Draft {
    let along = along(dim);
    let title = format!(
        "`{collective}` puts the parts of the ranks behind one another along dim 0, and `{buffer}` is larger in {along}: its rows are pieces of several rows"
    );
    let mut draft = Draft::new(&codes::SHARDS_APART, title);
    draft.primary = "fills the buffer rank by rank".to_string();
    draft.labels.push(Label { place: wider, message: format!("as many times larger in {along} as there are ranks") });
    draft.help.push(format!("make `{buffer}` larger in dim 0, and put `{buffer}.chunk(ranks)` together along {along}"));
    draft
}

fn packed_cut(parameter: &str, split: Place, filled: Place) -> Draft {
    let title =
        format!("`{parameter}` holds several parts, and is cut as one: a rank gets rows of other parts than it reads");
    let mut draft = Draft::new(&codes::SHARDS_APART, title);
    draft.primary = "equal runs of all rows".to_string();
    draft.labels.push(Label { place: split, message: "takes a share of every part".to_string() });
    draft.labels.push(Label { place: filled, message: "for these rows".to_string() });
    draft.help.push("cut each part for itself, and put the ranks' shares together".to_string());
    draft
}
