//! What a DTensor `redistribute` does: its steps, its collectives, its bytes. In: a mesh, a shape, placements. Out: a [`Plan`],
//! or PyTorch's refusal. Never: a tensor, or any other layer. Next: `route.rs` for the whole, `greedy.rs` and `graph.rs` for
//! the two planners, `batch.rs`, `text.rs` and `json.rs` for the answers.
//!
//! ```text
//!   mesh  placement  parse  order        what a question is made of
//!     greedy   graph <- cost             moves
//!       traffic                          what a move does on the wire
//!         refusal                        what PyTorch does not do
//!           route                        forward, backward, from_local
//!             batch  json  text          answers
//! ```
//!
//! The rule is that of torch 2.15; older ones differ (2.9 makes `R -> P` by division, and turns every pending gradient into a
//! whole one on the way back).

mod batch;
mod cost;
mod graph;
mod greedy;
mod json;
mod mesh;
mod order;
mod parse;
mod placement;
mod refusal;
mod route;
mod text;
mod traffic;

pub use batch::{Answer, Defaults, answer};
pub use json::{plan as plan_json, refusal as refusal_json};
pub use mesh::{Device, Dtype, Machine, Mesh, parse_shape};
pub use parse::{Written, placements as parse_placements};
pub use placement::{Placement, ReduceOp};
pub use refusal::{Kind, Refusal};
pub use route::{Backward, Plan, Planner, Question, Route, counts};
pub use text::plan as plan_text;
pub use traffic::{Collective, Step};
