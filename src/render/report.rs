//! The page of `spmd-check report`. In: files, types of variables, signatures, collectives, findings, coverage. Out: one HTML document that
//! needs nothing else. Never: a link to another server, or content that only a script shows. Next: `report.css`, `report.js`.

use super::{condition, positions};
use crate::check::Report;
use crate::source::{Diagnostic, File, FileId, Files};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

const STYLE: &str = include_str!("report.css");
const SCRIPT: &str = include_str!("report.js");

/// A collective call: what it does forward and backward.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectiveLine {
    pub path: String,
    pub line: u32,
    /// As it is called here.
    pub name: String,
    /// Forward, backward, and the arguments for which that holds; empty: always.
    pub pairs: Vec<(String, String, String)>,
}

/// What the page shows.
pub struct Page<'a> {
    pub files: &'a Files,
    pub report: &'a Report,
    pub findings: &'a [Diagnostic],
    pub collectives: &'a [CollectiveLine],
}

/// Writes the page.
pub fn write(page: &Page<'_>, out: &mut dyn Write) -> io::Result<()> {
    let shown: Vec<(FileId, &File)> = page.files.iter().filter(|(id, file)| page.has(*id, file)).collect();
    write!(out, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n")?;
    writeln!(out, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">")?;
    writeln!(out, "<meta name=\"color-scheme\" content=\"light dark\">")?;
    writeln!(out, "<title>spmd-check: types and findings</title>\n<style>\n{STYLE}</style>\n</head>\n<body>")?;
    writeln!(out, "<a class=\"skip\" href=\"#main\">Skip to the source</a>")?;
    page.header(out)?;
    writeln!(out, "<div class=\"columns\">")?;
    page.navigation(&shown, out)?;
    writeln!(out, "<main id=\"main\" tabindex=\"-1\">")?;
    for (id, file) in &shown {
        page.file(*id, file, out)?;
    }
    if shown.is_empty() {
        writeln!(out, "<p>Nothing is typed in these files, and nothing is found.</p>")?;
    }
    page.coverage(out)?;
    writeln!(out, "</main>\n</div>\n<script>\n{SCRIPT}</script>\n</body>\n</html>")
}

impl Page<'_> {
    fn has(&self, id: FileId, file: &File) -> bool {
        let typed = || self.report.types.iter().any(|row| row.path == file.path);
        let signed = || self.report.signatures.iter().any(|row| row.path == file.path);
        file.reported && (self.findings.iter().any(|f| f.place.file == id) || typed() || signed())
    }

    /// Every configuration that something depends on.
    fn configurations(&self) -> BTreeSet<String> {
        let types = self.report.types.iter().flat_map(|row| row.when.iter());
        let findings = self.findings.iter().flat_map(|finding| finding.when.iter());
        types.chain(findings).map(|when| plain_condition(when)).collect()
    }

    fn header(&self, out: &mut dyn Write) -> io::Result<()> {
        let count = |word: &str| self.findings.iter().filter(|f| f.severity.as_str() == word).count();
        let (errors, warnings) = (count("error"), count("warning"));
        let typed: BTreeSet<_> = self.report.types.iter().map(|r| (&r.path, &r.function)).collect();
        writeln!(out, "<header>\n<h1>spmd-check</h1>")?;
        writeln!(
            out,
            "<p class=\"summary\"><strong>{errors}</strong> errors, <strong>{warnings}</strong> warnings; types in <strong>{}</strong> functions</p>",
            typed.len()
        )?;
        writeln!(out, "<label for=\"configuration\">Configuration</label>\n<select id=\"configuration\">")?;
        writeln!(out, "<option value=\"\">all of them</option>")?;
        for configuration in self.configurations() {
            let text = escape(&configuration);
            writeln!(out, "<option value=\"{text}\">{text}</option>")?;
        }
        writeln!(out, "</select>\n<button type=\"button\" id=\"arrows\" aria-pressed=\"true\">Arrows</button>")?;
        writeln!(out, "<p id=\"status\" role=\"status\" aria-live=\"polite\"></p>")?;
        write!(out, "<dl class=\"legend\">")?;
        for (letter, word) in [("R", "Replicate"), ("I", "Invariant"), ("V", "Varying"), ("P", "Partial")] {
            write!(out, "<div><dt><span class=\"t {letter}\">{letter}</span></dt><dd>{word}</dd></div>")?;
        }
        writeln!(out, "</dl>\n</header>")
    }

    fn navigation(&self, shown: &[(FileId, &File)], out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "<nav aria-label=\"Files and functions\">\n<ul>")?;
        for (id, file) in shown {
            let count = self.findings.iter().filter(|f| f.place.file == *id).count();
            let badge = match count {
                0 => String::new(),
                n => format!(" <span class=\"badge\">{n}<span class=\"away\"> findings</span></span>"),
            };
            let index = number(*id);
            writeln!(out, "<li><a href=\"#f{index}\">{}</a>{badge}", escape(&file.path))?;
            let lines: BTreeMap<u32, &str> = self
                .report
                .signatures
                .iter()
                .filter(|s| s.path == file.path)
                .map(|s| (s.line, s.function.as_str()))
                .collect();
            if !lines.is_empty() {
                writeln!(out, "<ul>")?;
                for (line, function) in lines {
                    writeln!(out, "<li><a href=\"#f{index}-{line}\">{}</a></li>", escape(function))?;
                }
                writeln!(out, "</ul>")?;
            }
            writeln!(out, "</li>")?;
        }
        writeln!(out, "</ul>\n<p><a href=\"#coverage\">Coverage</a></p>\n</nav>")
    }

    fn file(&self, id: FileId, file: &File, out: &mut dyn Write) -> io::Result<()> {
        let index = number(id);
        let path = escape(&file.path);
        writeln!(out, "<section id=\"f{index}\" aria-labelledby=\"f{index}-h\" class=\"file\">")?;
        writeln!(
            out,
            "<h2 id=\"f{index}-h\">{path}</h2>\n<div class=\"source\" role=\"region\" aria-label=\"{path}\" tabindex=\"0\">"
        )?;
        writeln!(out, "<svg class=\"arrows\" aria-hidden=\"true\"></svg>\n<table>")?;
        writeln!(
            out,
            "<thead class=\"away\"><tr><th>Line</th><th>Source</th><th>Types after the line</th></tr></thead>\n<tbody>"
        )?;
        for line in 0..u32::try_from(file.lines().count()).unwrap_or(0) {
            let text = file.slice(file.lines().range(line, &file.text));
            let number = line + 1;
            if text.is_empty() && number as usize == file.lines().count() {
                continue;
            }
            self.signature(file, number, out)?;
            let marked =
                self.findings.iter().any(|f| f.place.file == id && positions(f.place, self.files).1.line == number);
            let class = if marked { " class=\"found\"" } else { "" };
            writeln!(
                out,
                "<tr id=\"f{index}-{number}\"{class}><th scope=\"row\">{number}</th><td class=\"code\">{}</td><td class=\"types\">{}{}</td></tr>",
                escape(text.trim_end()),
                self.types(file, number),
                self.collective(file, number),
            )?;
            for (at, finding) in self.findings.iter().enumerate() {
                if finding.place.file == id && positions(finding.place, self.files).1.line == number {
                    self.finding(at, finding, out)?;
                }
            }
        }
        writeln!(out, "</tbody>\n</table>\n</div>\n</section>")
    }

    /// The signatures of the function that a line defines.
    fn signature(&self, file: &File, line: u32, out: &mut dyn Write) -> io::Result<()> {
        let mut here = self.report.signatures.iter().filter(|s| s.path == file.path && s.line == line).peekable();
        if here.peek().is_none() {
            return Ok(());
        }
        write!(out, "<tr class=\"signature\"><td></td><td colspan=\"2\"><h3>")?;
        for (i, signature) in here.enumerate() {
            let gap = if i == 0 { "" } else { "<br>" };
            write!(out, "{gap}<code>{}</code>", escape(&signature.text))?;
        }
        writeln!(out, "</h3></td></tr>")
    }

    fn types(&self, file: &File, line: u32) -> String {
        let rows = self.report.types.iter().filter(|row| row.path == file.path && row.line == line);
        let mut out = String::new();
        for row in rows {
            let when = conditions(&row.when);
            let title = if row.when.is_empty() { String::new() } else { format!(" <i>when {when}</i>") };
            let types: Vec<String> = row
                .types
                .iter()
                .map(|(axis, known)| {
                    let letter = if known.starts_with('S') { "V" } else { known.get(..1).unwrap_or("") };
                    let class = if known.contains('|') { "several" } else { letter };
                    format!(
                        "<span class=\"t {class}\">{}</span><span class=\"axis\">@{}</span>",
                        escape(known),
                        escape(axis)
                    )
                })
                .collect();
            out += &format!(
                "<span class=\"typed\" data-when=\"{when}\"><var>{}</var> {}{title}</span>",
                escape(&row.variable),
                types.join(" ")
            );
        }
        out
    }

    fn collective(&self, file: &File, line: u32) -> String {
        let mut out = String::new();
        for call in self.collectives.iter().filter(|c| c.path == file.path && c.line == line) {
            for (forward, backward, given) in &call.pairs {
                let given = if given.is_empty() { String::new() } else { format!(" <i>when {}</i>", escape(given)) };
                out += &format!(
                    "<span class=\"call\"><b>{}</b> <span>forward {}</span> <span>backward {}</span>{given}</span>",
                    escape(&call.name),
                    escape(forward),
                    escape(backward)
                );
            }
        }
        out
    }

    fn finding(&self, at: usize, finding: &Diagnostic, out: &mut dyn Write) -> io::Result<()> {
        let severity = finding.severity.as_str();
        let when = conditions(&finding.when);
        writeln!(out, "<tr class=\"finding {severity}\" data-when=\"{when}\"><td></td><td colspan=\"2\">")?;
        let here = positions(finding.place, self.files).1.line;
        let target = format!("f{}-{here}", number(finding.place.file));
        writeln!(
            out,
            "<article id=\"d{at}\" tabindex=\"0\" data-at=\"{target}\" aria-label=\"{severity} {}\">",
            finding.code
        )?;
        writeln!(
            out,
            "<p class=\"title\"><b>{severity}[{}]</b> {}</p>",
            escape(finding.code),
            escape(&finding.message)
        )?;
        writeln!(out, "<ol class=\"provenance\">")?;
        for label in finding.labels.iter().rev() {
            let (file, start, _) = positions(label.place, self.files);
            let from = format!("f{}-{}", number(label.place.file), start.line);
            let text = escape(file.slice(label.place.span).lines().next().unwrap_or(""));
            writeln!(
                out,
                "<li data-from=\"{from}\"><a href=\"#{from}\">{}:{}</a> <code>{text}</code> {}</li>",
                escape(&file.path),
                start.line,
                escape(&label.message)
            )?;
        }
        writeln!(out, "</ol>")?;
        for line in condition(finding).iter().chain(&finding.notes) {
            writeln!(out, "<p>{}</p>", escape(line))?;
        }
        for help in &finding.help {
            writeln!(out, "<p class=\"help\">help: <code>{}</code></p>", escape(help))?;
        }
        writeln!(out, "</article></td></tr>")
    }

    fn coverage(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "<section id=\"coverage\" aria-labelledby=\"coverage-h\"><h2 id=\"coverage-h\">Coverage</h2>")?;
        writeln!(out, "<table class=\"counts\"><tbody>")?;
        for (label, count) in &self.report.coverage {
            writeln!(out, "<tr><td>{count}</td><th scope=\"row\">{}</th></tr>", escape(label))?;
        }
        writeln!(out, "</tbody></table>")?;
        if !self.report.unknown_sites.is_empty() {
            writeln!(out, "<h3>Collective calls that are not typed</h3>\n<ul>")?;
            for (path, line, why) in &self.report.unknown_sites {
                writeln!(out, "<li>{}:{line}: {}</li>", escape(path), escape(why))?;
            }
            writeln!(out, "</ul>")?;
        }
        writeln!(out, "</section>")
    }
}

fn number(id: FileId) -> usize {
    crate::source::Idx::index(id)
}

fn plain_condition(when: &str) -> String {
    when.strip_prefix("when ").unwrap_or(when).replace('`', "")
}

/// Conditions as the script compares them.
fn conditions(when: &[String]) -> String {
    escape(&when.iter().map(|one| plain_condition(one)).collect::<Vec<_>>().join(" or "))
}

fn escape(text: &str) -> String {
    let text: String = text.chars().filter(|c| !c.is_control() || *c == '\t').collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
