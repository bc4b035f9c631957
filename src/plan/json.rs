//! A plan for programs. In: a question and its plan, or a refusal. Out: one JSON object. Never: words for people, but for the
//! message of a refusal. Next: `text.rs`.

use super::refusal::Refusal;
use super::route::{self, Plan, Planner, Question, Route};
use serde_json::{Value, json};

/// `{"mesh", "shape", "dtype", "src", "dst", "forward", "backward", "from_local", "total"}`; sizes in elements, bytes per rank.
pub fn plan(question: &Question, plan: &Plan) -> Value {
    let mesh: Vec<Value> = (0..question.mesh.ndim())
        .map(|dim| json!({ "name": question.mesh.name(dim), "size": question.mesh.size(dim) }))
        .collect();
    let words = |placements: &[super::Placement]| -> Vec<String> { placements.iter().map(|p| p.to_string()).collect() };
    let mut answer = json!({
        "mesh": mesh,
        "shape": question.shape,
        "dtype": question.dtype.name,
        "src": words(&question.source),
        "dst": words(&question.target),
        "forward": route_of(question, &plan.forward),
        "backward": null,
        "from_local": null,
        "total": {
            "collectives": route::counts(plan.routes(), question.machine),
            "bytes": plan.routes().fold(0u64, |all, route| all.saturating_add(route.bytes())),
        },
    });
    match &plan.backward {
        Some(Ok(backward)) => {
            answer["backward"] = route_of(question, &backward.redistribute);
            answer["from_local"] = route_of(question, &backward.from_local);
        }
        Some(Err(error)) => answer["backward"] = refusal(error),
        None => {}
    }
    answer
}

fn route_of(question: &Question, route: &Route) -> Value {
    let steps: Vec<Value> = route
        .steps
        .iter()
        .map(|step| {
            json!({
                "mesh_dim": step.mesh_dim,
                "axis": question.mesh.name(step.mesh_dim),
                "from": step.from.to_string(),
                "to": step.to.to_string(),
                "collective": step.collective.map(|collective| collective.name()),
                "operator": step.collective.map(|collective| collective.operator(question.machine.device)),
                "group": step.group,
                "bytes": step.bytes,
                "local": step.local,
            })
        })
        .collect();
    let planner = match route.planner {
        Planner::Greedy | Planner::Undecodable => "greedy",
        Planner::Graph => "graph",
    };
    json!({ "steps": steps, "trace": route.trace, "planner": planner, "bytes": route.bytes() })
}

/// `{"error": {"kind", "text", "message", "help"}}`; the text is PyTorch's.
pub fn refusal(refusal: &Refusal) -> Value {
    json!({ "error": {
        "kind": refusal.kind.name(),
        "text": refusal.text,
        "message": refusal.words,
        "help": refusal.help,
    } })
}
