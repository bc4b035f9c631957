//! How types flow through a function, as a graph. In: the types of its variables line by line, its source, its findings. Out: DOT or Mermaid.
//! Never: an edge that the text of a line does not show. Next: `cli/graph.rs`.

use crate::source::File;
use std::fmt::Write as _;

/// The type of a variable after a line.
pub struct Node {
    pub line: u32,
    pub variable: String,
    /// `{tp: R}`
    pub text: String,
    /// When it has that type; empty: always.
    pub when: String,
    /// Words about a finding on the line.
    pub finding: Option<String>,
}

impl Node {
    fn said(&self) -> String {
        if self.when.is_empty() { self.text.clone() } else { format!("{} when {}", self.text, self.when) }
    }
}

/// Nodes in the order of their lines, and which leads to which.
pub struct Flow {
    pub title: String,
    pub nodes: Vec<Node>,
    edges: Vec<(usize, usize)>,
}

impl Flow {
    /// Connects each value with the values that its line reads.
    pub fn new(title: String, nodes: Vec<Node>, file: &File) -> Flow {
        let mut edges = Vec::new();
        for (to, node) in nodes.iter().enumerate() {
            let index = node.line.saturating_sub(1);
            let text = file.slice(file.lines().range(index, &file.text));
            let code = text.split('#').next().unwrap_or(text);
            let is_definition = code.trim_start().starts_with("def ") || code.trim_start().starts_with("async def ");
            if is_definition && node.variable != "return" {
                continue;
            }
            let read = match code.split_once('=') {
                Some((target, value)) if !target.contains('(') && !value.starts_with('=') => value,
                _ => code,
            };
            let returned = last_return(file, node);
            let read = if node.variable == "return" { returned.as_str() } else { read };
            for (from, earlier) in nodes.iter().enumerate() {
                let before = node.variable == "return" || earlier.line < node.line;
                // The last value in each configuration.
                let is_before = |n: &Node| node.variable == "return" || n.line < node.line;
                let same = |n: &Node| n.variable == earlier.variable && n.when == earlier.when;
                let last = nodes.iter().rposition(|n| same(n) && is_before(n));
                let other = !node.when.is_empty() && !earlier.when.is_empty() && node.when != earlier.when;
                let leads = from != to && before && earlier.variable != "return" && last == Some(from) && !other;
                if leads && has(read, &earlier.variable) {
                    edges.push((from, to));
                }
            }
        }
        Flow { title, nodes, edges }
    }

    /// For Graphviz.
    pub fn dot(&self) -> String {
        let mut out =
            format!("digraph {} {{\n  rankdir=TB;\n  node [shape=box, fontname=\"monospace\"];\n", quoted(&self.title));
        for (i, node) in self.nodes.iter().enumerate() {
            let mut label = format!("{}: {}\\n{}", node.line, node.variable, node.said());
            let mut style = String::new();
            if let Some(finding) = &node.finding {
                let _ = write!(label, "\\n{finding}");
                style = ", color=red, penwidth=2".to_string();
            }
            let _ = writeln!(out, "  n{i} [label={}{style}];", quoted(&label));
        }
        for (from, to) in &self.edges {
            let _ = writeln!(out, "  n{from} -> n{to};");
        }
        out.push_str("}\n");
        out
    }

    /// For Mermaid, as Markdown on GitHub and GitLab shows it.
    pub fn mermaid(&self) -> String {
        let mut out = format!("---\ntitle: {}\n---\nflowchart TD\n", self.title.replace('\n', " "));
        let plain = |text: &str| {
            text.replace('&', "#amp;")
                .replace('"', "#quot;")
                .replace('<', "#lt;")
                .replace('>', "#gt;")
                .replace('`', "#96;")
        };
        for (i, node) in self.nodes.iter().enumerate() {
            let finding = node.finding.as_ref().map_or(String::new(), |f| format!("<br>{}", plain(f)));
            let _ = writeln!(
                out,
                "  n{i}[\"{}: {}<br>{}{finding}\"]",
                node.line,
                plain(&node.variable),
                plain(&node.said())
            );
        }
        for (from, to) in &self.edges {
            let _ = writeln!(out, "  n{from} --> n{to}");
        }
        let found: Vec<String> =
            self.nodes.iter().enumerate().filter(|(_, n)| n.finding.is_some()).map(|(i, _)| format!("n{i}")).collect();
        if !found.is_empty() {
            let _ = writeln!(
                out,
                "  classDef finding stroke:#b3261e,stroke-width:3px\n  class {} finding",
                found.join(",")
            );
        }
        out
    }
}

/// What the last `return` below a definition returns.
fn last_return(file: &File, node: &Node) -> String {
    if node.variable != "return" {
        return String::new();
    }
    let line = |index: u32| file.slice(file.lines().range(index, &file.text));
    let width = |text: &str| text.len() - text.trim_start().len();
    let start = node.line.saturating_sub(1);
    let own = width(line(start));
    if let Some(value) = line(start).trim_start().strip_prefix("return ") {
        return value.to_string();
    }
    let mut found = String::new();
    for index in start + 1..u32::try_from(file.lines().count()).unwrap_or(0) {
        let text = line(index);
        if !text.trim().is_empty() && width(text) <= own && !text.trim_start().starts_with([')', '#']) {
            break;
        }
        if let Some(value) = text.trim_start().strip_prefix("return ") {
            found = value.to_string();
        }
    }
    found
}

/// Whether a variable, or an attribute such as `self.weight`, is read in a text.
fn has(text: &str, variable: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(variable)
        .any(|(at, _)| !text[..at].ends_with(|c| part(c) || c == '.') && !text[at + variable.len()..].starts_with(part))
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\\\""))
}
