//! Words of distributed tensors: placements, meshes, plans. In: findings. Out: drafts. Never: detection. Next: `layout.rs`.

use super::super::codes;
use super::{Draft, Words, label};
use crate::infer::dtensor::found::{Cost, Distributed, MeshMistake, PlanMistake};
use crate::infer::finding::OperandAt;
use crate::plan::Placement;
use crate::source::{Label, Name, Place};
use crate::types::{Axis, Mesh};

impl Words<'_> {
    pub fn distributed(&self, mistake: &Distributed) -> Draft {
        match mistake {
            Distributed::ShardDim { api, dim, rank } => shard_dim(api, *dim, *rank),
            Distributed::Refused { api, refusal } => {
                let mut draft = Draft::new(&codes::REFUSED_PLACEMENT, format!("`{api}` is refused: {}", refusal.words));
                draft.notes.push(format!("{} at run time: {}", refusal.kind.name(), refusal.text));
                draft.help.extend(refusal.help.clone());
                draft
            }
            Distributed::Again { api, was, wanted } => {
                let title = format!("`{api}` of a tensor that lies {}, to {}", placed(was), placed(wanted));
                let mut draft = Draft::new(&codes::REFUSED_PLACEMENT, title);
                draft.notes.push("only what is not distributed yet can be distributed".to_string());
                draft.help.push("move it with `redistribute`".to_string());
                draft
            }
            Distributed::NotLocal { api, tensor } => {
                let value = self.named(*tensor);
                let title = format!("`{api}` takes the tensor of one process, and {value} is distributed already");
                let mut draft = Draft::new(&codes::REFUSED_PLACEMENT, title);
                draft.help.push(format!("use {value} as it is, or `to_local()` first"));
                draft
            }
            Distributed::TwoMeshes { op, meshes: [a, b], at } => {
                let title = format!("`{}` of tensors on two meshes, {} and {}", short(op), shown(a), shown(b));
                let mut draft = Draft::new(&codes::TWO_MESHES, title);
                draft.labels.extend(label(Some(at[0]), format!("on {}", shown(a))));
                draft.labels.extend(label(Some(at[1]), format!("on {}", shown(b))));
                draft.notes.push("the run time does not move a tensor from one mesh to another".to_string());
                draft.help.push("place both on one mesh, `Replicate()` on the dims that do not matter".to_string());
                draft
            }
            Distributed::OtherMesh { api, meshes: [a, b] } => {
                let title = format!("`{api}` from mesh {} to mesh {}", shown(a), shown(b));
                let mut draft = Draft::new(&codes::TWO_MESHES, title);
                draft.notes.push("the run time does not move a tensor from one mesh to another".to_string());
                draft.help.push("`full_tensor()` first, then `distribute_tensor` on the other mesh".to_string());
                draft
            }
            Distributed::Mixed { op, distributed, plain } => self.mixed_tensors(op, *distributed, *plain),
            Distributed::Implicit { op, axis, placement, operand, cost } => {
                self.implicit(op, axis.as_ref(), *placement, *operand, cost.as_ref())
            }
            Distributed::InPlace { op, axis, placement, operand } => {
                let value = self.named(*operand);
                let title = format!(
                    "`{}` in place on {value}, which is {}{}",
                    short(op),
                    words(*placement),
                    over(axis.as_ref())
                );
                let mut draft = Draft::new(&codes::REFUSED_PLACEMENT, title);
                draft.notes.push(
                    "RuntimeError at run time: in-place operations that require placement changes are not supported"
                        .to_string(),
                );
                draft.help.push("redistribute first, or use the operation that makes a new tensor".to_string());
                draft
            }
            Distributed::Claim { api, axis, placement, operand } => self.claim(api, axis, *placement, operand),
            Distributed::View { .. }
            | Distributed::Notations { .. }
            | Distributed::ModeGone { .. }
            | Distributed::PartialResult { .. } => self.stated(mistake),
            Distributed::Mesh(mistake) => mesh(mistake),
            Distributed::Plan(
                mistake @ (PlanMistake::Layouts { .. } | PlanMistake::Whole { .. } | PlanMistake::Apart { .. }),
            ) => self.plan_at_work(mistake),
            Distributed::Plan(mistake) => plan(mistake),
        }
    }

    fn claim(&self, api: &str, axis: &Axis, placement: Placement, operand: &OperandAt) -> Draft {
        let value = self.name(operand);
        let is = operand.state.notation();
        let title = format!("`{api}` says {placement} on `{axis}`, and {value} is {is} there");
        let mut draft = Draft::new(&codes::FALSE_PLACEMENT, title);
        draft.labels.extend(label(operand.place, format!("{is} on `{axis}`")));
        draft.notes.push("nothing compares the ranks: what follows computes with the part of one rank".to_string());
        draft.help.push(match is.chars().next() {
            Some('P') => "state `Partial()`, or reduce before".to_string(),
            _ => "state `Shard(dim)` or `Partial()`, whichever it is, and `redistribute`".to_string(),
        });
        draft
    }

    fn mixed_tensors(&self, op: &str, distributed: Place, plain: Place) -> Draft {
        let (a, b) = (self.named(distributed), self.named(plain));
        let title = format!("`{}` of {a}, which is distributed, and {b}, which is not", short(op));
        let mut draft = Draft::new(&codes::MIXED_TENSORS, title);
        draft.labels.push(Label { place: distributed, message: "distributed".to_string() });
        draft.labels.push(Label { place: plain, message: "a tensor of this process".to_string() });
        draft.notes.push("RuntimeError at run time: got mixed torch.Tensor and DTensor".to_string());
        let plain = b.trim_matches('`').to_string();
        draft.help.push(format!("distribute it too: `distribute_tensor({plain}, mesh, [Replicate()])`"));
        draft
    }

    fn implicit(
        &self,
        op: &str,
        axis: Option<&Axis>,
        placement: Placement,
        operand: Place,
        cost: Option<&Cost>,
    ) -> Draft {
        let value = self.named(operand);
        let title = format!(
            "`{}` first reduces {value}, which is {}{}, by a collective that nobody wrote",
            short(op),
            words(placement),
            over(axis)
        );
        let mut draft = Draft::new(&codes::IMPLICIT_REDISTRIBUTION, title);
        draft.labels.push(Label { place: operand, message: words(placement) });
        draft.notes.push(match cost {
            Some(Cost { ranks, bytes }) => {
                format!("an all-reduce over {ranks} ranks: in float32 each of them sends {bytes} bytes")
            }
            None => "an all-reduce of the whole tensor, each time".to_string(),
        });
        draft.help.push("`redistribute` before, to `Replicate()`, or to `Shard(dim)`, which moves less".to_string());
        draft
    }
}

fn shard_dim(api: &str, dim: i64, rank: usize) -> Draft {
    let dims = match rank {
        0 => "no dims".to_string(),
        1 => "one dim".to_string(),
        n => format!("{n} dims"),
    };
    let mut draft = Draft::new(&codes::REFUSED_PLACEMENT, format!("`{api}` shards dim {dim} of a tensor with {dims}"));
    draft.primary = format!("dim {dim} of {dims}");
    draft.help.push(match rank {
        0 => "a scalar can only be `Replicate()` or `Partial()`".to_string(),
        n => format!("shard a dim from 0 to {}", n - 1),
    });
    draft
}

fn mesh(mistake: &MeshMistake) -> Draft {
    let draft = |title: String, help: &str| {
        let mut draft = Draft::new(&codes::MESH_DIMS, title);
        draft.help.push(help.to_string());
        draft
    };
    match mistake {
        MeshMistake::Names { names, sizes } => draft(
            format!("a mesh with {} and {}", count(*sizes, "size"), count(*names, "name")),
            "one name for each dim",
        ),
        MeshMistake::Repeated(name) => {
            draft(format!("two dims of a mesh are called `{name}`"), "each dim has its own name")
        }
        MeshMistake::NoDim { name, mesh } => {
            draft(format!("mesh {} has no dim `{name}`", shown(mesh)), "slice by a name that the mesh was made with")
        }
        MeshMistake::Unnamed => {
            draft("a slice of a mesh whose dims have no names".to_string(), "make the mesh with `mesh_dim_names=(...)`")
        }
        MeshMistake::Order { given, mesh } => draft(
            format!("a slice by {}, in another order than the dims of mesh {}", listed(given), shown(mesh)),
            "name each dim once, in the order of the mesh",
        ),
        MeshMistake::WhichDim { method, mesh } => draft(
            format!("`{method}()` of mesh {}, without saying of which dim", shown(mesh)),
            "give the dim: its name or number",
        ),
        MeshMistake::Dims { api, dims, least, most } => {
            let takes = if least == most {
                format!("of {}", count(*most, "dim"))
            } else {
                format!("of {least} or {most} dims")
            };
            draft(
                format!("`{api}` takes a mesh {takes}, and this one has {dims}"),
                "give a slice by name, such as `mesh[\"tp\"]`",
            )
        }
        MeshMistake::NoNames { api } => draft(
            format!("`{api}` over a mesh of 2 dims that have no names"),
            "make the mesh with `mesh_dim_names=(\"replicate\", \"shard\")`",
        ),
    }
}

fn plan(mistake: &PlanMistake) -> Draft {
    match mistake {
        PlanMistake::NoModule { key, class, near } => {
            let title = format!("the plan names `{key}`, and `{class}` has no such module");
            let mut draft = Draft::new(&codes::PLAN_WITHOUT_MODULE, title);
            draft.notes.push("the entry is skipped with a warning: the module stays as it is".to_string());
            if let Some(near) = near {
                draft.help.push(format!("there is `{near}`"));
            }
            draft
        }
        PlanMistake::Layer { style, key, layer, takes } => {
            let whom = if key.is_empty() { "the module".to_string() } else { format!("`{key}`") };
            let title = format!("`{style}` for {whom}, which is a `{layer}`");
            let mut draft = Draft::new(&codes::PARALLEL_PLAN, title);
            draft.notes.push(format!("NotImplementedError at run time: it knows {} only", listed(takes)));
            draft.help.push("use a style without weights, or leave the module out of the plan".to_string());
            draft
        }
        PlanMistake::Lengths { style, given, desired } => {
            let title = format!("`{style}` with {} and {} that are desired", count(*given, "layout"), desired);
            let mut draft = Draft::new(&codes::PARALLEL_PLAN, title);
            draft.help.push("one desired layout for each layout, `None` for what is no tensor".to_string());
            draft
        }
        PlanMistake::Layouts { .. } | PlanMistake::Whole { .. } | PlanMistake::Apart { .. } => {
            Draft::new(&codes::PLAN_LAYOUTS, String::new())
        }
        PlanMistake::Arity { argument, takes, given } => {
            let title = format!("`{argument}` is called with {given} arguments, and this function takes {takes}");
            let mut draft = Draft::new(&codes::PARALLEL_PLAN, title);
            draft.help.push("a name, a module, the mesh for `partition_fn`; a module, its inputs or outputs, the mesh for the others".to_string());
            draft
        }
        PlanMistake::NoDesired { style } => {
            let mut draft =
                Draft::new(&codes::PARALLEL_PLAN, format!("`{style}` with layouts, and none that are desired"));
            draft.help.push("say what the module gets: the desired layouts".to_string());
            draft
        }
    }
}

fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

fn listed(names: &[Name]) -> String {
    names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ")
}

/// `(dp=2, tp=4)`
fn shown(mesh: &Mesh) -> String {
    let dims: Vec<String> = mesh
        .axes
        .iter()
        .map(|(axis, size)| match (axis.is_variable(), size) {
            (false, Some(size)) => format!("{axis}={size}"),
            (false, None) => axis.to_string(),
            (true, Some(size)) => size.to_string(),
            (true, None) => "?".to_string(),
        })
        .collect();
    format!("({})", dims.join(", "))
}

fn placed(placements: &[Placement]) -> String {
    placements.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn over(axis: Option<&Axis>) -> String {
    axis.map(|axis| format!(" over `{axis}`")).unwrap_or_default()
}

fn words(placement: Placement) -> String {
    match placement.reduce_op() {
        Some(op) => format!("a pending {}", op.name()),
        None => placement.to_string(),
    }
}

pub(super) fn short(op: &str) -> &str {
    let last = op.rsplit('.').next().unwrap_or(op);
    last.strip_prefix("__").and_then(|s| s.strip_suffix("__")).unwrap_or(last)
}
