//! The keys of the configuration and what each accepts. In: TOML text. Out: [`Config`] and every mistake in it. Never:
//! looking at the disk. Next: `reader.rs` for typed access, the commented `spmd-check.toml` at the root for meaning.

use super::reader::{Checks, Entry, Reader, Value, entries, resolve_codes, span_of};
use super::{
    Config, Contracts, DefaultType, Flag, FlagValue, Group, INVALID_CONFIG, Level, MeshAxis, Mode, PerFileIgnore,
    TorchVersion,
};
use crate::source::walk::Globs;
use crate::source::{Diagnostic, FileId, Severity};
use std::path::Path;
use toml::de::{DeTable, DeValue};

/// What a top-level key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyShape {
    Value,
    /// A table whose keys are the user's own names.
    OpenTable,
    /// A table with these keys only.
    Table(&'static [&'static str]),
}

/// Every top-level key, in the order in which they are documented.
pub const KEYS: &[(&str, KeyShape)] = &[
    ("include", KeyShape::Value),
    ("exclude", KeyShape::Value),
    ("src", KeyShape::Value),
    ("target-torch", KeyShape::Value),
    ("select", KeyShape::Value),
    ("ignore", KeyShape::Value),
    ("mode", KeyShape::Table(&["names", "global"])),
    ("global", KeyShape::Value),
    ("mesh", KeyShape::OpenTable),
    ("groups", KeyShape::OpenTable),
    ("flags", KeyShape::OpenTable),
    ("defaults", KeyShape::OpenTable),
    ("contracts", KeyShape::Table(&["loss", "gradients"])),
    ("rules", KeyShape::Table(&["extend"])),
    ("levels", KeyShape::OpenTable),
    ("per-file-ignores", KeyShape::OpenTable),
];

/// Which part of a file is the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    WholeFile,
    /// `[tool.spmd-check]`; the rest belongs to other tools.
    Pyproject,
}

/// Reads a configuration text. The result is to be used only when there are no diagnostics.
pub(super) fn read(
    file: FileId,
    text: &str,
    section: Section,
    root: &Path,
    checks: &Checks,
) -> (Config, Vec<Diagnostic>) {
    let mut reader = Reader { file, checks, problems: Vec::new() };
    let mut config = Config { root: root.to_owned(), ..Config::default() };
    let (document, errors) = DeTable::parse_recoverable(text);
    // What follows a header that is not closed belongs to a table that nobody can name.
    let mut nameless = u32::MAX;
    for error in errors {
        let span = error.span().unwrap_or(0..0);
        if error.message().contains("unclosed table") {
            nameless = nameless.min(u32::try_from(span.start).unwrap_or(u32::MAX));
        }
        let message = error.message().trim().replace('\n', ", ");
        let key = text.get(span.clone()).unwrap_or("").trim();
        let message = match message == "duplicate key" {
            true => format!("`{key}` is set twice"),
            false => format!("the configuration is not valid TOML: {message}"),
        };
        reader.report(INVALID_CONFIG, &span, message, "");
    }
    if let Some(table) = section_table(document.get_ref(), section, &mut reader) {
        for entry in entries(table) {
            read_key(&entry, &mut config, &mut reader);
        }
    }
    check_axes(&config, &mut reader);
    let mut problems = reader.problems;
    problems.retain(|problem| problem.code == INVALID_CONFIG.0 || problem.place.span.start < nameless);
    problems.sort_by_key(|problem| problem.place.span);
    (config, problems)
}

/// Whether a `pyproject.toml` has a section for this program.
pub(super) fn has_section(text: &str) -> bool {
    let (document, _) = DeTable::parse_recoverable(text);
    let tool = document.get_ref().get("tool").and_then(|tool| tool.get_ref().as_table());
    tool.is_some_and(|tool| tool.contains_key("spmd-check"))
}

fn section_table<'v, 'i>(document: &'v DeTable<'i>, section: Section, reader: &mut Reader) -> Option<&'v DeTable<'i>> {
    match section {
        Section::WholeFile => Some(document),
        Section::Pyproject => {
            let value = document.get("tool")?.get_ref().as_table()?.get("spmd-check")?;
            if value.get_ref().as_table().is_none() {
                reader.wrong_type("tool.spmd-check", value, "a table");
            }
            value.get_ref().as_table()
        }
    }
}

fn read_key(entry: &Entry, config: &mut Config, reader: &mut Reader) {
    let (key, value) = (entry.key.as_str(), entry.value);
    match key {
        "include" => config.include = read_globs(key, value, reader),
        "exclude" => config.exclude = read_globs(key, value, reader),
        "src" => config.src = reader.strings(key, value).iter().map(|(path, _)| config.root.join(path)).collect(),
        "target-torch" => config.target_torch = read_version(key, value, reader),
        "select" => config.select = read_codes(key, value, reader),
        "ignore" => config.ignore = read_codes(key, value, reader),
        "mode" => read_mode(value, &mut config.mode, reader),
        "global" => config.mode.global |= reader.boolean(key, value).unwrap_or(false),
        "mesh" => config.mesh = read_mesh(value, reader),
        "groups" => config.groups = read_groups(value, reader),
        "flags" => config.flags = read_flags(value, reader),
        "defaults" => config.defaults = read_defaults(value, reader),
        "contracts" => config.contracts = read_contracts(value, reader),
        "rules" => read_rules(value, config, reader),
        "levels" => config.levels = read_levels(value, reader),
        "per-file-ignores" => config.per_file_ignores = read_per_file_ignores(value, reader),
        _ => {
            let known: Vec<&str> = KEYS.iter().map(|(name, _)| *name).collect();
            reader.unknown_key(entry, None, &known);
        }
    }
}

fn read_globs(key: &str, value: &Value, reader: &mut Reader) -> Globs {
    let mut patterns = Vec::new();
    for (pattern, span) in reader.strings(key, value) {
        match Globs::new([pattern.as_str()]) {
            Ok(_) => patterns.push(pattern),
            Err(error) => {
                reader.invalid(&span, format!("`{pattern}` in `{key}` is not a glob: {error}"), "");
            }
        }
    }
    Globs::new(patterns.iter().map(String::as_str)).unwrap_or_default()
}

fn read_codes(key: &str, value: &Value, reader: &mut Reader) -> Vec<&'static str> {
    let items = reader.string_or_strings(key, value);
    reader.codes(items)
}

fn read_version(key: &str, value: &Value, reader: &mut Reader) -> Option<TorchVersion> {
    let Some(text) = value.get_ref().as_str() else {
        // 2.10 as a number is 2.1: the quotes are not a formality.
        reader.wrong_type(key, value, "a string such as \"2.6\"");
        return None;
    };
    // As `--show-settings` says it.
    if text == "newest" {
        return None;
    }
    let mut parts = text.split('.').map(str::parse::<u32>);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Some(TorchVersion { major, minor }),
        _ => {
            reader.invalid(
                &value.span(),
                format!("`{text}` is not a version of torch, such as \"2.6\", and not \"newest\""),
                "",
            );
            None
        }
    }
}

fn read_mode(value: &Value, mode: &mut Mode, reader: &mut Reader) {
    if value.get_ref().as_table().is_none() {
        mode.names = modes("mode", value, reader);
        return;
    }
    for entry in reader.table("mode", value) {
        match entry.key.as_str() {
            "names" => mode.names = modes("mode.names", entry.value, reader),
            "global" => mode.global |= reader.boolean("mode.global", entry.value).unwrap_or(false),
            _ => reader.unknown_key(&entry, Some("mode"), &["names", "global"]),
        }
    }
}

/// Names of parallel modes, each once.
fn modes(key: &str, value: &Value, reader: &mut Reader) -> Vec<String> {
    let mut items = reader.string_or_strings(key, value);
    items.retain(|(name, span)| match (reader.checks.mode)(name) {
        Ok(()) => true,
        Err(known) => {
            let near = super::suggest::closest(name, known.iter().copied());
            let problem = reader.invalid(span, format!("`{name}` is not a parallel mode"), "");
            problem.help.push(match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the modes are {}", known.join(", ")),
            });
            false
        }
    });
    unique(items, "mode", reader)
}

fn read_mesh(value: &Value, reader: &mut Reader) -> Vec<MeshAxis> {
    let mut axes = Vec::new();
    for entry in reader.table("mesh", value) {
        if !is_name(&entry.key) {
            let message = format!("`{}` is not an axis name", entry.key);
            reader.invalid(&entry.span, message, "letters, digits and `_`, not starting with a digit");
            continue;
        }
        let size = match entry.value.get_ref() {
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok(),
            DeValue::String(text) if text.trim() == "?" => Some(0),
            _ => None,
        };
        match size.and_then(|size| u64::try_from(size).ok()) {
            Some(size) => {
                axes.push(MeshAxis { name: entry.key, size: (size > 0).then_some(size), span: span_of(&entry.span) });
            }
            None => {
                let message = format!("the size of axis `{}` is neither a number of ranks nor \"?\"", entry.key);
                reader.invalid(&entry.value.span(), message, "0 or \"?\" when it is not known");
            }
        }
    }
    axes
}

fn read_groups(value: &Value, reader: &mut Reader) -> Vec<Group> {
    let mut groups = Vec::new();
    for entry in reader.dotted_table("groups", value) {
        let key = format!("groups.{}", entry.key);
        let items = reader.string_or_strings(&key, entry.value);
        let axes = unique(items, "axis", reader);
        groups.push(Group { expression: entry.key, axes, span: span_of(&entry.value.span()) });
    }
    groups
}

fn read_flags(value: &Value, reader: &mut Reader) -> Vec<Flag> {
    let mut flags = Vec::new();
    for entry in reader.dotted_table("flags", value) {
        let values: Vec<Option<FlagValue>> = match entry.value.get_ref() {
            DeValue::Array(items) => items.iter().map(|item| flag_value(&entry.key, item, reader)).collect(),
            _ => vec![flag_value(&entry.key, entry.value, reader)],
        };
        if values.is_empty() {
            reader.invalid(&entry.value.span(), format!("flag `{}` has no value to enumerate", entry.key), "");
        }
        let values = values.into_iter().flatten().collect();
        flags.push(Flag { name: entry.key, values, span: span_of(&entry.span) });
    }
    flags
}

fn flag_value(name: &str, value: &Value, reader: &mut Reader) -> Option<FlagValue> {
    match value.get_ref() {
        DeValue::Boolean(flag) => return Some(FlagValue::Bool(*flag)),
        DeValue::String(text) => return Some(FlagValue::Str(text.to_string())),
        DeValue::Integer(number) => {
            if let Ok(number) = i64::from_str_radix(number.as_str(), number.radix()) {
                return Some(FlagValue::Int(number));
            }
        }
        _ => {}
    }
    reader.wrong_type(&format!("flags.{name}"), value, "a boolean, an integer, a string, or an array of those");
    None
}

fn read_defaults(value: &Value, reader: &mut Reader) -> Vec<DefaultType> {
    let mut defaults = Vec::new();
    for entry in reader.dotted_table("defaults", value) {
        if let Some(text) = read_type(&format!("defaults.{}", entry.key), entry.value, reader) {
            defaults.push(DefaultType { name: entry.key, text, span: span_of(&entry.value.span()) });
        }
    }
    defaults
}

fn read_type(key: &str, value: &Value, reader: &mut Reader) -> Option<String> {
    let text = reader.string(key, value)?;
    if let Err(why) = (reader.checks.type_text)(&text) {
        reader.invalid(&value.span(), format!("`{key}` is not a type: {why}"), "");
        return None;
    }
    Some(text)
}

fn read_contracts(value: &Value, reader: &mut Reader) -> Contracts {
    let mut contracts = Contracts::default();
    for entry in reader.table("contracts", value) {
        match entry.key.as_str() {
            "gradients" => match entry.value.get_ref().as_str().and_then(|t| t.strip_prefix("mean over ")) {
                Some(axes) => {
                    contracts.gradient_mean = Some(axes.split(',').map(|a| a.trim().to_string()).collect());
                }
                None => reader.wrong_type("contracts.gradients", entry.value, "\"mean over AXES\""),
            },
            "loss" if said(entry.value).is_some() => {
                contracts.mean_over_tokens = said(entry.value) == Some(true);
            }
            "loss" => {
                let text = read_type("contracts.loss", entry.value, reader);
                contracts.loss = text.map(|text| (text, span_of(&entry.value.span())));
            }
            _ => reader.unknown_key(&entry, Some("contracts"), &["loss", "gradients"]),
        }
    }
    contracts
}

/// Whether the words for a loss say that it is a mean over the tokens of all ranks; nothing if they are no such words.
fn said(value: &Value) -> Option<bool> {
    match value.get_ref().as_str()? {
        "mean over global tokens" | "mean over all tokens" => Some(true),
        "mean over local tokens" | "mean over samples" => Some(false),
        _ => None,
    }
}

fn read_rules(value: &Value, config: &mut Config, reader: &mut Reader) {
    for entry in reader.table("rules", value) {
        match entry.key.as_str() {
            "extend" => {
                let paths = reader.strings("rules.extend", entry.value);
                config.rules_extend = paths.iter().map(|(path, _)| config.root.join(path)).collect();
            }
            _ => reader.unknown_key(&entry, Some("rules"), &["extend"]),
        }
    }
}

fn read_levels(value: &Value, reader: &mut Reader) -> Vec<(&'static str, Level)> {
    let mut levels = Vec::new();
    for entry in reader.table("levels", value) {
        let codes = resolve_codes(&entry.key, reader.checks.codes);
        if codes.is_none() {
            reader.unknown_code(&entry.key, &entry.span);
        }
        let level = match entry.value.get_ref().as_str() {
            Some("error") => Level::Report(Severity::Error),
            Some("warning") => Level::Report(Severity::Warning),
            Some("note") => Level::Report(Severity::Note),
            Some("off") => Level::Off,
            _ => {
                let expected = "\"error\", \"warning\", \"note\" or \"off\"";
                reader.invalid(&entry.value.span(), format!("the level of `{}` is not {expected}", entry.key), "");
                continue;
            }
        };
        levels.extend(codes.unwrap_or_default().into_iter().map(|code| (code, level)));
    }
    levels
}

fn read_per_file_ignores(value: &Value, reader: &mut Reader) -> Vec<PerFileIgnore> {
    let mut rows = Vec::new();
    for entry in reader.table("per-file-ignores", value) {
        let codes = read_codes(&format!("per-file-ignores.{}", entry.key), entry.value, reader);
        match Globs::new([entry.key.as_str()]) {
            Ok(files) => rows.push(PerFileIgnore { files, codes }),
            Err(error) => {
                reader.invalid(&entry.span, format!("`{}` is not a glob: {error}", entry.key), "");
            }
        }
    }
    rows
}

/// Groups and axes have to agree once a mesh is declared; without one, the axes come from the code.
fn check_axes(config: &Config, reader: &mut Reader) {
    if config.mesh.is_empty() {
        return;
    }
    let known: Vec<&str> = config.mesh.iter().map(|axis| axis.name.as_str()).collect();
    for group in &config.groups {
        for axis in group.axes.iter().filter(|axis| !known.contains(&axis.as_str())) {
            let span = group.span.start as usize..group.span.end as usize;
            let list = known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            let message = format!("group `{}` spans `{axis}`, which is not an axis of `[mesh]`", group.expression);
            let suggestion = super::suggest::closest(axis, known.iter().copied());
            let problem = reader.invalid(&span, message, "");
            problem.help.push(match suggestion {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the axes of `[mesh]` are {list}"),
            });
        }
    }
}

fn unique(items: Vec<(String, std::ops::Range<usize>)>, what: &str, reader: &mut Reader) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for (item, span) in items {
        if out.contains(&item) {
            reader.invalid(&span, format!("{what} `{item}` is listed twice"), "");
        } else {
            out.push(item);
        }
    }
    out
}

fn is_name(text: &str) -> bool {
    let head = text.chars().next().is_some_and(|c| c.is_alphabetic() || c == '_');
    head && text.chars().all(|c| c.is_alphanumeric() || c == '_')
}
