//! Meshes and process groups that are made, and how many ranks they have where code says so with a number. In: calls that make them. Out:
//! their values, and `world` and `dims` of the state. Never: which axes a name stands for, which is `groups.rs`. Source: the sizes of the
//! dims of a mesh multiply to the number of all ranks (torch.distributed.device_mesh). Next: `verdict.rs`.

use super::Run;
use super::calls::Args;
use super::groups::WORLD;
use super::value::{State, Val};
use crate::ir::{Const, StmtId};
use crate::types::{Axis, AxisSet, Scale};

impl<'a> Run<'a> {
    pub fn mesh(&mut self, id: StmtId, args: &Args, state: &mut State) -> Val {
        let names = match args.keyword("mesh_dim_names").or_else(|| args.plain.get(2)) {
            Some(Val::Tuple(items)) => items.clone(),
            Some(Val::List(l)) => state.lists[*l].items.clone(),
            _ => return Val::Named(self.text(state, id)),
        };
        let axes: Option<Vec<Axis>> = names.iter().map(|v| v.text().map(|t| Axis::new(t.clone()))).collect();
        let Some(axes) = axes else { return Val::Named(self.text(state, id)) };
        let sizes = match args.plain.get(1).or_else(|| args.keyword("mesh_shape")) {
            Some(Val::Tuple(sizes)) => sizes.clone(),
            Some(Val::List(l)) => state.lists[*l].items.clone(),
            _ => Vec::new(),
        };
        for (size, axis) in sizes.iter().zip(&axes) {
            if let Val::Named(text) = size {
                state.sizes.insert(text.clone(), AxisSet::one(axis.clone()));
            }
            self.dim_has(axis, size, state);
        }
        // A second mesh is another way to see the same ranks.
        if state.world.is_none() {
            *state.world = Some(axes.iter().cloned().collect());
        }
        Val::Mesh(axes)
    }

    /// The start of all ranks, which may say how many there are.
    pub fn started(&mut self, id: StmtId, args: &Args, state: &mut State) -> Val {
        if let Some(size @ Val::Const(_)) = args.keyword("world_size") {
            self.dim_has(&Axis::new(WORLD), size, state);
        }
        Val::Named(self.text(state, id))
    }

    /// A method of a mesh.
    pub fn of_mesh(&mut self, id: StmtId, axes: &[Axis], name: &str, args: &Args, state: &mut State) -> Option<Val> {
        let dim = args.plain.first().or_else(|| args.keyword("mesh_dim"));
        match name {
            "get_group" => Some(Val::Group(state.dim(axes, dim)?)),
            "size" => {
                let axes = state.dim(axes, dim)?;
                Some(state.num(Scale::size(&axes)))
            }
            "_flatten" | "flatten" => {
                if let Some(alias) = args.get(0, "mesh_dim_name").and_then(Val::text) {
                    state.aliases.insert(alias.clone(), axes.to_vec());
                }
                Some(Val::Mesh(axes.to_vec()))
            }
            _ => Some(Val::Named(self.text(state, id))),
        }
    }

    /// Notes how many ranks an axis has; two numbers for one axis are two meshes, and neither is known to be meant.
    fn dim_has(&self, axis: &Axis, size: &Val, state: &mut State) {
        // What is left over is written as -1.
        let is_rest = matches!(size, Val::Const(Const::Int(n)) if *n < 1);
        let scale = self.factor(size).filter(|_| !is_rest).unwrap_or(Scale::Unknown);
        let known = state.dims.get(axis).map_or_else(|| scale.clone(), |old| old.join(&scale));
        if state.dims.get(axis) != Some(&known) {
            state.dims.insert(axis.clone(), known);
        }
    }
}
