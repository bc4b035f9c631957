//! What holds for a run, and why. In: a configuration. Out: every setting with its value, the files that are read, or which configuration
//! a file has. Never: findings. Next: `config/mod.rs` for the settings.

use super::args::CheckOptions;
use super::failure::Failure;
use super::project::{self, Input, Project};
use super::{Outcome, engine, output};
use crate::config::{Config, FlagValue, Level};
use crate::render::{Color, Format};
use crate::source::Severity;
use crate::source::walk::{absolute, is_source};
use std::path::Path;

/// `--show-settings`
pub(super) fn settings(config: &Config) -> Result<Outcome, Failure> {
    output::write(|out| lines(config).iter().try_for_each(|line| writeln!(out, "{line}")))?;
    Ok(Outcome::Clean)
}

/// `--show-files`: one path a line, those that are only loaded for their definitions marked.
pub(super) fn files(project: &Project, verbose: bool) -> Result<Outcome, Failure> {
    output::write(|out| {
        for (_, file) in project.files.iter() {
            match (file.reported, verbose) {
                (true, _) => writeln!(out, "{}", file.path)?,
                (false, true) => writeln!(out, "{} (loaded, not reported)", file.path)?,
                (false, false) => {}
            }
        }
        Ok(())
    })?;
    let loaded = project.files.len() - project.reported;
    if loaded > 0 && !verbose {
        output::say(&format!(
            "{} more are loaded for their definitions; `-v` lists them",
            output::plural(loaded, "file")
        ));
    }
    Ok(if project.incomplete { Outcome::Incomplete } else { Outcome::Clean })
}

/// `--explain-config FILE`: which configuration holds for a file, and what it says about it.
pub(super) fn explain(options: &CheckOptions, file: &Path) -> Result<Outcome, Failure> {
    let cwd = project::current_folder()?;
    let path = absolute(file, &cwd);
    let shown = file.to_string_lossy();
    if !path.is_file() {
        return Err(Failure::message(format!("`{shown}` is not a file")));
    }
    let input = Input::of(&cwd, file);
    let config = project::configure(&input, &options.config, Format::Full, Color::Plain)?;
    let mut said = vec![match (&config.path, options.config.isolated, options.config.config.is_some()) {
        (_, true, _) => format!("{shown}: no configuration, as `--isolated` says"),
        (Some(found), _, true) => format!("{shown}: configuration `{found}`, as `--config` says"),
        (Some(found), _, false) => format!("{shown}: configuration `{found}`, the nearest one upwards"),
        (None, _, _) => {
            format!("{shown}: no `spmd-check.toml` and no `[tool.spmd-check]` upwards: every default holds")
        }
    }];
    said.push(format!("root: {}", config.root.display()));
    let inside = config.relative(&path);
    let checked = if config.exclude.matches(inside) {
        "no: `exclude` matches it, also when it is given by name"
    } else if is_source(&path, &config.include, &config.exclude, &config.root) {
        "yes"
    } else if config.include.is_empty() {
        "when it is given by name: it does not end in `.py`, or lies in a folder that is left out"
    } else {
        "when it is given by name: `include` does not match it"
    };
    said.push(format!("checked: {checked}"));
    said.extend(codes(&config, file));
    said.push(String::new());
    said.extend(lines(&config));
    output::write(|out| said.iter().try_for_each(|line| writeln!(out, "{line}")))?;
    Ok(Outcome::Clean)
}

/// Codes that are off for a file, and why.
fn codes(config: &Config, file: &Path) -> Vec<String> {
    let shown = file.to_string_lossy();
    let mut out = Vec::new();
    for (code, name) in engine::CODES {
        let off = config.severity(code, Severity::Error, &shown).is_none();
        let why = if !config.select.is_empty() && !config.select.contains(code) {
            "not in `select`"
        } else if config.ignore.contains(code) {
            "in `ignore`"
        } else if config.levels.iter().any(|(known, level)| known == code && *level == Level::Off) {
            "off in `[levels]`"
        } else {
            "in `[per-file-ignores]`"
        };
        if off {
            out.push(format!("off: {code} {name}, {why}"));
        }
    }
    out
}

/// Every setting that has a value, as it is written in the file.
fn lines(config: &Config) -> Vec<String> {
    let mut out = vec![format!("# from {}", config.path.as_deref().unwrap_or("the defaults"))];
    let list = |items: &[&str]| items.iter().map(|item| format!("{item:?}")).collect::<Vec<_>>().join(", ");
    let folder = |path: &std::path::PathBuf| path.to_string_lossy().into_owned();
    let paths = |paths: &[std::path::PathBuf]| -> Vec<String> { paths.iter().map(folder).collect() };
    let shown = |paths: &[String]| list(&paths.iter().map(String::as_str).collect::<Vec<_>>());
    out.push(format!("include = [{}]", shown(config.include.written())));
    out.push(format!("exclude = [{}]", shown(config.exclude.written())));
    out.push(format!("src = [{}]", shown(&paths(&config.src))));
    let torch = config.target_torch.map_or("newest".to_owned(), |v| format!("{}.{}", v.major, v.minor));
    out.push(format!("target-torch = {torch:?}"));
    out.push(format!(
        "select = [{}]",
        if config.select.is_empty() { "\"all\"".to_owned() } else { list(&config.select) }
    ));
    out.push(format!("ignore = [{}]", list(&config.ignore)));
    out.push(format!("mode = [{}]", shown(&config.mode.names)));
    out.push(format!("global = {}", config.mode.global));
    out.push("[mesh]".to_owned());
    out.extend(
        config.mesh.iter().map(|a| format!("{} = {}", a.name, a.size.map_or("\"?\"".to_owned(), |n| n.to_string()))),
    );
    out.push("[groups]".to_owned());
    out.extend(config.groups.iter().map(|g| format!("{:?} = [{}]", g.expression, shown(&g.axes))));
    out.push("[flags]".to_owned());
    out.extend(config.flags.iter().map(|flag| {
        let values = flag.values.iter().map(|value| match value {
            FlagValue::Bool(b) => b.to_string(),
            FlagValue::Int(n) => n.to_string(),
            FlagValue::Str(s) => format!("{s:?}"),
        });
        format!("{:?} = [{}]", flag.name, values.collect::<Vec<_>>().join(", "))
    }));
    out.push("[defaults]".to_owned());
    out.extend(config.defaults.iter().map(|d| format!("{} = {:?}", d.name, d.text)));
    out.push("[contracts]".to_owned());
    out.extend(config.contracts.loss.iter().map(|(text, _)| format!("loss = {text:?}")));
    out.push("[rules]".to_owned());
    out.push(format!("extend = [{}]", shown(&paths(&config.rules_extend))));
    out.push("[levels]".to_owned());
    out.extend(config.levels.iter().map(|(code, level)| {
        let level = match level {
            Level::Report(severity) => severity.as_str(),
            Level::Off => "off",
        };
        format!("{code} = {level:?}")
    }));
    out.push("[per-file-ignores]".to_owned());
    out.extend(
        config
            .per_file_ignores
            .iter()
            .map(|row| format!("{:?} = [{}]", row.files.written().join(" "), list(&row.codes))),
    );
    out
}
