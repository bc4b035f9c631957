//! Types beside the code. In: a range of a file. Out: a hint after each parameter and each assigned variable whose type is known.
//! Never: two hints for one name of one line. Next: `words.rs`.

use super::text::Encoding;
use super::text::Text;
use super::types::FileTypes;
use super::words;
use super::workspace::Workspace;
use crate::infer::Row;
use crate::source::FileId;
use lsp_types::{InlayHint, InlayHintKind, InlayHintLabel, InlayHintTooltip, Position, Range};
use rustc_hash::FxHashMap;

pub fn hints(
    workspace: &Workspace,
    file: FileId,
    types: &FileTypes,
    range: Range,
    encoding: Encoding,
) -> Vec<InlayHint> {
    let session = &workspace.session;
    let text = Text::new(session.text(file), encoding);
    // The last row of a line is what holds after it.
    let mut shown: FxHashMap<(u32, u32), (Position, &Row)> = FxHashMap::default();
    for row in types.rows.iter().filter(|row| !row.variable.is_empty() && row.variable != "return") {
        let Some(position) = after_name(workspace, file, &text, row) else { continue };
        if position < range.start || range.end < position {
            continue;
        }
        shown.insert((position.line, position.character), (position, row));
    }
    let mut out: Vec<(Position, &Row)> = shown.into_values().collect();
    out.sort_by_key(|(position, _)| *position);
    out.into_iter().filter_map(|(position, row)| hint(position, row)).collect()
}

fn hint(position: Position, row: &Row) -> Option<InlayHint> {
    let label = format!(": {}", words::short(&row.ty.local)?);
    let gradient = words::gradient(&row.ty.local).map(|g| InlayHintTooltip::String(format!("gradient {g}")));
    Some(InlayHint {
        position,
        label: InlayHintLabel::String(label),
        kind: Some(InlayHintKind::TYPE),
        text_edits: None,
        tooltip: gradient,
        padding_left: None,
        padding_right: Some(true),
        data: None,
    })
}

/// Where the hint of a row stands: after the parameter, or after the name that its line assigns.
fn after_name(workspace: &Workspace, file: FileId, text: &Text<'_>, row: &Row) -> Option<Position> {
    let session = &workspace.session;
    let source = &session.files()[file];
    let func = session.project().func(row.func);
    if let Some(param) = func.params.iter().find(|p| p.name == row.variable)
        && row.place.span == func.name_span
    {
        let name_end = param.span.start + u32::try_from(param.name.len()).unwrap_or(0);
        let at = source.position(name_end);
        return Some(text.position(at.line - 1, at.column - 1));
    }
    let at = source.position(row.place.span.start);
    let line = text.line(at.line - 1);
    let name = row.variable.as_str();
    let inside = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '.');
    let found = line.match_indices(name).find(|(i, _)| {
        let (before, after) = (line[..*i].chars().next_back(), line[i + name.len()..].chars().next());
        !inside(before) && !inside(after) && is_assigned(&line[i + name.len()..])
    });
    let (i, _) = found?;
    let column = u32::try_from(line[..i + name.len()].chars().count()).unwrap_or(u32::MAX);
    Some(text.position(at.line - 1, column))
}

/// Whether what follows a name in its line makes it a target: `= ...`, `, y = ...`, `+= ...`.
fn is_assigned(rest: &str) -> bool {
    let Some(at) = rest.find('=') else { return false };
    let between = rest[..at].trim_end_matches(['+', '-', '*', '/', '@', '%', '&', '|', '^']);
    let plain = |c: char| c.is_alphanumeric() || " _,.*[]()".contains(c);
    !rest[at..].starts_with("==")
        && (between.trim().is_empty()
            || between.trim_start().starts_with([',', ':', ')']) && between.chars().all(|c| plain(c) || c == ':'))
}
