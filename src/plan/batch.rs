//! Many questions, one JSON object a line. In: a line. Out: the same object with its answer. Never: reading files, or stopping
//! at a line that is wrong. Next: `route.rs`.
//!
//! A question is `{"mesh", "shape", "src", "dst"}`, and `"dtype"` if it is not that of the command line. The answer adds
//! `"steps": [[mesh_dim, from, to]]`, `"forward"` and `"backward"`: `[operator, count]` pairs; or `"error": [kind, text]`.

use super::mesh::{self, Dtype, Machine, Mesh};
use super::parse::{self, Written};
use super::refusal::{Kind, Refusal};
use super::route::{self, Plan, Question, Route};
use serde_json::{Map, Value, json};

/// What questions leave open.
#[derive(Clone, Copy, Debug)]
pub struct Defaults {
    pub dtype: Dtype,
    pub machine: Machine,
}

/// An answer, and whether the question could be put.
#[derive(Clone, Debug)]
pub struct Answer {
    pub line: String,
    pub understood: bool,
}

/// Keys that are answers: a record that already has them is answered again.
const ANSWERS: [&str; 5] = ["steps", "forward", "backward", "error", "backward_error"];

/// Answers one line; `number` is counted from 1. Empty lines have no answer.
pub fn answer(line: &[u8], number: usize, defaults: Defaults) -> Option<Answer> {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    if line.iter().all(u8::is_ascii_whitespace) {
        return None;
    }
    let mut record = match serde_json::from_slice(line) {
        Ok(Value::Object(record)) => record,
        Ok(_) => return Some(unreadable(number, "it is not a JSON object")),
        Err(error) => return Some(unreadable(number, &format!("it is not JSON: {error}"))),
    };
    for key in ANSWERS {
        record.remove(key);
    }
    let mut understood = true;
    match question(&record, defaults).and_then(|question| Ok((question.plan()?, question.machine))) {
        Ok((plan, machine)) => add(&mut record, &plan, machine),
        Err(refusal) => {
            understood = refusal.kind != Kind::InputError;
            record.insert("error".to_owned(), pair(&refusal));
        }
    }
    Some(Answer { line: Value::Object(record).to_string(), understood })
}

fn unreadable(number: usize, what: &str) -> Answer {
    let refusal = Refusal::input(format!("line {number}: {what}"));
    Answer { line: json!({ "line": number, "error": pair(&refusal) }).to_string(), understood: false }
}

fn pair(refusal: &Refusal) -> Value {
    json!([refusal.kind.name(), refusal.text])
}

fn add(record: &mut Map<String, Value>, plan: &Plan, machine: Machine) {
    let counts = |routes: &[&Route]| {
        let counts = route::counts(routes.iter().copied(), machine);
        Value::Array(counts.into_iter().map(|(operator, count)| json!([operator, count])).collect())
    };
    let steps = plan.forward.steps.iter();
    let steps = steps.map(|step| json!([step.mesh_dim, step.from.to_string(), step.to.to_string()])).collect();
    record.insert("steps".to_owned(), Value::Array(steps));
    record.insert("forward".to_owned(), counts(&[&plan.forward]));
    let (key, value) = match &plan.backward {
        Some(Ok(backward)) => ("backward", counts(&[&backward.redistribute, &backward.from_local])),
        Some(Err(refusal)) => ("backward_error", pair(refusal)),
        None => ("backward", counts(&[])),
    };
    record.insert(key.to_owned(), value);
}

/// The question that a record puts.
fn question(record: &Map<String, Value>, defaults: Defaults) -> Result<Question, Refusal> {
    let field = |key: &str| record.get(key).ok_or_else(|| Refusal::input(format!("`{key}` is missing")));
    let mesh = match field("mesh")? {
        Value::String(text) => Mesh::parse(text),
        value => sizes("mesh", value).and_then(Mesh::of_sizes),
    };
    let shape = match field("shape")? {
        Value::String(text) => mesh::parse_shape(text),
        value => sizes("shape", value).and_then(mesh::check_shape),
    };
    let dtype = match record.get("dtype") {
        Some(Value::String(text)) => Dtype::parse(text),
        Some(_) => Err("`dtype` is not a string".to_owned()),
        None => Ok(defaults.dtype),
    };
    let source = placements("src", field("src")?).map_err(Refusal::input)?;
    let target = placements("dst", field("dst")?).map_err(Refusal::input)?;
    let (mesh, shape, dtype) =
        (mesh.map_err(Refusal::input)?, shape.map_err(Refusal::input)?, dtype.map_err(Refusal::input)?);
    Question::new(mesh, shape, dtype, defaults.machine, &source, &target)
}

/// `[2, 4]`.
fn sizes(key: &str, value: &Value) -> Result<Vec<u64>, String> {
    let list = value.as_array().ok_or_else(|| format!("`{key}` is neither a list of sizes nor a string"))?;
    list.iter().map(|size| size.as_u64().ok_or_else(|| format!("`{key}`: `{size}` is not a size"))).collect()
}

/// `["R", "S(0)"]`, or the same in one string.
fn placements(key: &str, value: &Value) -> Result<Vec<Written>, String> {
    let within = |words: String| format!("`{key}`: {words}");
    if let Value::String(text) = value {
        return parse::placements(text).map_err(within);
    }
    let list = value.as_array().ok_or_else(|| format!("`{key}` is neither a list of placements nor a string"))?;
    let mut found = Vec::with_capacity(list.len());
    for entry in list {
        let text = entry.as_str().ok_or_else(|| within(format!("`{entry}` is not a string")))?;
        match parse::placements(text).map_err(within)?.as_slice() {
            [one] => found.push(*one),
            _ => return Err(within(format!("`{text}` is not one placement"))),
        }
    }
    Ok(found)
}
