//! Edits that give a value another type: a conversion where it is used, where it is made or where it is assigned, another collective, or
//! none. In: the remedies of a finding. Out: every way to write them, the likeliest first. Never: choosing by the name of a function.
//! Next: `text.rs`; `infer/repair.rs` makes the remedies.

use super::Edits;
use super::text::{
    call, delete_lines, edit, function_before, has_word, import, is_dotted, is_name, leading_expression, line_range,
    whole_line, words_at,
};
use crate::infer::finding::{Finding, Remedy};
use crate::source::{Applicability, Files, Fix, Place};

/// Remedies of one class are ways to write one repair; those of another class compete with them.
pub fn flow(files: &Files, finding: &Finding) -> Option<Fix> {
    let remedies: Vec<&Remedy> = finding.repairs.iter().filter_map(|r| r.remedy.as_ref()).collect();
    let first = remedies.first()?;
    let (mut ways, mut rivals): (Vec<Edits>, Vec<Edits>) = (Vec::new(), Vec::new());
    for remedy in &remedies {
        let found = written(files, remedy);
        match (remedy.class == first.class, remedy.certain == first.certain) {
            (true, true) => ways.extend(found),
            (true, false) => {}
            (false, _) => rivals.extend(found),
        }
    }
    if ways.is_empty() {
        // None of them was the first choice: the order says nothing.
        let mut all = rivals.into_iter();
        let edits = all.next()?;
        let certain = remedies.iter().all(|r| r.certain);
        return Some(made(certain, edits, Vec::new(), all.collect()));
    }
    let mut ways = ways.into_iter();
    let edits = ways.next()?;
    Some(made(first.certain, edits, ways.collect(), rivals))
}

fn made(certain: bool, edits: Edits, variants: Vec<Edits>, rivals: Vec<Edits>) -> Fix {
    let applicability = if certain { Applicability::Safe } else { Applicability::Unsafe };
    Fix { applicability, edits, variants, rivals }
}

/// The ways to write a remedy.
fn written(files: &Files, remedy: &Remedy) -> Vec<Edits> {
    let file = &files[remedy.place.file];
    let old = file.slice(remedy.place.span);
    if old.is_empty() {
        return Vec::new();
    }
    if remedy.template == "{x}" {
        return removed(files, remedy);
    }
    let Some(imported) = bound(files, remedy) else { return Vec::new() };
    let mut out: Vec<Edits> = Vec::new();
    let mut add = |place: Place, text: String| {
        let mut edits = vec![edit(place.file, place.span.start as usize, place.span.end as usize, text)];
        edits.extend(imported.iter().cloned());
        out.push(edits);
    };
    let mut places = vec![remedy.place];
    places.extend(remedy.made.filter(|made| made.file == remedy.place.file && *made != remedy.place));
    places.extend(assigned(files, remedy.place, old));
    for place in places {
        let value = file.slice(place.span);
        if value.is_empty() || value.contains('#') {
            continue;
        }
        for template in spelled(&file.text, place.span.start as usize, remedy) {
            add(place, template.replace("{x}", value));
        }
    }
    out
}

/// The call with its group, as calls around it write theirs.
fn spelled(text: &str, at: usize, remedy: &Remedy) -> Vec<String> {
    let template = &remedy.template;
    let (_, function) = function_before(text, at);
    if template.contains("{axis}") {
        let keyword = template.contains("={axis}");
        let mut groups = if keyword { keyword_groups(function) } else { second_arguments(function, template) };
        if groups.is_empty() {
            groups = if keyword { keyword_groups(text) } else { second_arguments(text, template) };
        }
        if groups.is_empty() && has_word(function, &remedy.axis) {
            groups.push(remedy.axis.to_string());
        }
        return groups.into_iter().take(2).map(|g| template.replace("{axis}", &g)).collect();
    }
    let mut out = Vec::new();
    if let Some(head) = template.strip_suffix("({x})").filter(|head| !head.contains(".apply")) {
        let groups = keyword_groups(function).into_iter().filter(|g| g.contains(remedy.axis.as_str()) || !is_name(g));
        out.extend(groups.take(1).map(|g| format!("{head}({{x}}, group={g})")));
    }
    out.push(template.clone());
    out
}

/// Values of `group=` in a text, the last one first.
fn keyword_groups(text: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let found: Vec<usize> = words_at(text, "group").collect();
    for at in found.into_iter().rev() {
        let Some(rest) = text.get(at + 5..).and_then(|r| r.strip_prefix('=')).filter(|r| !r.starts_with('=')) else {
            continue;
        };
        let value = leading_expression(rest);
        let plain = !value.is_empty() && !value.contains('\n') && value != "None";
        if plain && !out.iter().any(|known| known == value) {
            out.push(value.to_string());
        }
    }
    out
}

/// Second arguments of calls of the same module's functions, the last one first.
fn second_arguments(text: &str, template: &str) -> Vec<String> {
    let Some(prefix) = template.split('.').next().filter(|p| is_name(p)) else { return Vec::new() };
    let mut out: Vec<String> = Vec::new();
    let found: Vec<usize> = words_at(text, prefix).collect();
    for at in found.into_iter().rev() {
        let rest = text.get(at..).unwrap_or("");
        let Some(open) = rest.find('(').filter(|open| is_dotted(&rest[..*open])) else { continue };
        let Some(close) = super::text::closing(&rest[open..]) else { continue };
        let Some(found) = call(&rest[..open + close + 1]) else { continue };
        // A conversion: its types are arguments.
        if !rest[..open + close].contains("src=") && !rest[..open + close].contains("dst=") {
            continue;
        }
        if let Some((_, second)) = found.arguments.get(1).filter(|(_, a)| is_dotted(a) || a.starts_with(['"', '\''])) {
            let second = (*second).to_string();
            if !out.contains(&second) {
                out.push(second);
            }
        }
    }
    out
}

/// The values that are assigned to a name before its use in the function, the last one first.
fn assigned(files: &Files, place: Place, name: &str) -> Vec<Place> {
    if !is_name(name) {
        return Vec::new();
    }
    let (base, function) = function_before(&files[place.file].text, place.span.start as usize);
    let mut out = Vec::new();
    let mut at = base;
    for line in function.split_inclusive('\n') {
        let head = line.trim_start();
        let value = head.strip_prefix(name).map(str::trim_start).and_then(|r| r.strip_prefix('='));
        if let Some(value) = value.filter(|v| !v.starts_with('=')) {
            let value = value.split('#').next().unwrap_or(value).trim_end();
            let start =
                at + (line.len() - head.len()) + (head.len() - head.split_once('=').map_or(head, |(_, r)| r).len());
            let lead = files[place.file].text.get(start..).map_or(0, |r| r.len() - r.trim_start_matches(' ').len());
            let value = value.trim_start();
            // One that goes on in the next line is left alone.
            if !value.is_empty() && leading_expression(value) == value {
                let end = start + lead + value.len();
                let span = edit(place.file, start + lead, end, "").place;
                out.push(span);
            }
        }
        at += line.len();
    }
    out.reverse();
    out.truncate(3);
    out
}

/// The call is taken away, and its argument stays.
fn removed(files: &Files, remedy: &Remedy) -> Vec<Edits> {
    let file = &files[remedy.place.file];
    let shown = file.slice(remedy.place.span);
    let Some(found) = call(shown) else { return Vec::new() };
    let Some((_, first)) = found.arguments.first() else { return Vec::new() };
    let (start, end) = (remedy.place.span.start as usize, remedy.place.span.end as usize);
    match whole_line(file, remedy.place) {
        Some((from, to, Some(name))) if name == *first => {
            let (from, _) = line_range(&file.text, from);
            vec![vec![delete_lines(remedy.place.file, &file.text, from, to)]]
        }
        Some((_, _, None)) => Vec::new(),
        _ => vec![vec![edit(remedy.place.file, start, end, *first)]],
    }
}

/// What makes the function of a remedy bound: nothing, or an import. `None` where it cannot be had.
fn bound(files: &Files, remedy: &Remedy) -> Option<Option<crate::source::Edit>> {
    let Some((module, name)) = &remedy.import else { return Some(None) };
    let text = &files[remedy.place.file].text;
    // A mention is no binding, so the import has to be one that there is.
    import(remedy.place.file, text, module, name).map(Some)
}
