//! `spmd-check graph FUNCTION`. In: options. Out: the flow of types through a function, as DOT or Mermaid. Never: findings of their own; they
//! mark nodes. Next: `render/graph.rs`.

use super::args::{GraphFormat, GraphOptions};
use super::engine::TypeRow;
use super::failure::Failure;
use super::inferred::Inferred;
use super::{Outcome, output};
use crate::config::suggest::closest;
use crate::fix::at_levels;
use crate::render::graph::{Flow, Node};
use crate::source::Diagnostic;
use std::collections::BTreeSet;

pub(super) fn run(options: &GraphOptions) -> Result<Outcome, Failure> {
    let inferred = Inferred::new(&options.input, &options.config, &options.shared)?;
    let Inferred { config, project, report, .. } = &inferred;
    let (path, function) = find(&options.function, &report.types)?;
    let Some((id, file)) = project.files.iter().find(|(_, file)| file.path == path) else {
        return Err(Failure::message(format!("`{path}` is not loaded")));
    };
    let findings = at_levels(config, &project.files, report.diagnostics.clone());
    let mut rows: Vec<&TypeRow> = report.types.iter().filter(|r| r.path == path && r.function == function).collect();
    // What a function returns comes last, although its place is the `def`.
    rows.sort_by_key(|row| (row.variable == "return", row.line));
    let words = |f: &Diagnostic| format!("{} {}", f.code, f.name);
    let nodes = rows.into_iter().map(|row| {
        let types: Vec<String> = row.types.iter().map(|(axis, known)| format!("{axis}: {known}")).collect();
        let found = findings.iter().find(|f| f.place.file == id && file.position(f.place.span.start).line == row.line);
        Node {
            line: row.line,
            variable: row.variable.clone(),
            text: format!("{{{}}}", types.join(", ")),
            when: row.when.join(" or "),
            finding: found.map(words),
        }
    });
    let mut nodes: Vec<Node> = nodes.collect();
    // What comes out of a mistake has no type, and its place in the graph.
    let inside = body(&nodes, &file.text);
    for found in findings.iter().filter(|f| f.place.file == id) {
        let line = file.position(found.place.span.start).line;
        if !inside.contains(&line) || nodes.iter().any(|n| n.line == line) {
            continue;
        }
        let text = file.slice(file.lines().range(line.saturating_sub(1), &file.text)).trim();
        let target = text.split_once(" = ").map_or("value", |(target, _)| target);
        let at = nodes.iter().position(|n| n.variable == "return" || n.line > line).unwrap_or(nodes.len());
        let (variable, text) = (target.to_owned(), "{?}".to_owned());
        nodes.insert(at, Node { line, variable, text, when: String::new(), finding: Some(words(found)) });
    }
    let flow = Flow::new(function, nodes, file);
    output::write(|out| match options.format {
        GraphFormat::Dot => write!(out, "{}", flow.dot()),
        GraphFormat::Mermaid => write!(out, "{}", flow.mermaid()),
    })?;
    Ok(inferred.outcome())
}

/// The lines of the function that has these nodes: from its first one to where the text is indented less.
fn body(nodes: &[Node], text: &str) -> std::ops::Range<u32> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let Some(first) = nodes.iter().map(|n| n.line).min() else { return 0..0 };
    let mut lines = text.lines().skip(first as usize - 1);
    let head = lines.next().unwrap_or_default();
    let least = indent(head) + usize::from(head.contains("def "));
    let rest = lines.take_while(|line| line.trim().is_empty() || indent(line) >= least).count();
    first..first + 1 + u32::try_from(rest).unwrap_or(0)
}

/// The path and name of the one function that is meant.
fn find(wanted: &str, rows: &[TypeRow]) -> Result<(String, String), Failure> {
    let known: BTreeSet<(&str, &str)> = rows.iter().map(|row| (row.path.as_str(), row.function.as_str())).collect();
    let dotted = |path: &str| path.trim_end_matches(".py").trim_end_matches("/__init__").replace('/', ".");
    let is_it = |(path, function): &&(&str, &str)| {
        let whole = format!("{}.{function}", dotted(path));
        *function == wanted || whole == wanted || whole.ends_with(&format!(".{wanted}"))
    };
    let found: Vec<_> = known.iter().filter(is_it).collect();
    match found.as_slice() {
        [(path, function)] => Ok(((*path).to_owned(), (*function).to_owned())),
        [] => {
            let failure = Failure::message(format!("nothing is typed in a function `{wanted}`"));
            Err(match closest(wanted, known.iter().map(|(_, function)| *function)) {
                Some(near) => failure.with_help(format!("did you mean `{near}`?")),
                None => failure.with_help("`spmd-check types` lists what is typed".to_owned()),
            })
        }
        several => {
            let names: Vec<String> = several.iter().map(|(p, f)| format!("`{}.{f}`", dotted(p))).collect();
            let failure = Failure::message(format!("`{wanted}` is the name of {} functions", several.len()));
            Err(failure.with_help(format!("one of {}", names.join(", "))))
        }
    }
}
