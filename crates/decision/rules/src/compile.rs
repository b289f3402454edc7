//! From rule files to a snapshot.
//!
//! Reads all files first, then merges the files of each domain and builds its tree. Collects problems to the end, so that
//! one run shows them all; an error anywhere means no snapshot.

mod domain;
mod limits;
mod tables;

use std::sync::Arc;

use foldhash::fast::FixedState;
use indexmap::IndexMap;

use crate::document::{self, RuleFile};
use crate::identity::{version_of, version_with_rows};
use crate::options::Options;
use crate::row_file::is_row_file;
use crate::rule::Rule;
use crate::snapshot::{Domain, Snapshot};
use domain::DomainBuild;
use limits::LimitsBuild;
use tidegate_document::{Fault, Problems, Report, Source};
use tidegate_row_table::Rows;

/// Compiles all rule files into one snapshot. Sources whose names end in `.csv` are rows of the tables that name them.
///
/// # Errors
/// With all problems of all files, when any file has an error.
pub fn compile(sources: &[Source], options: &Options) -> Result<Snapshot, Report> {
    compile_all(sources, None, options)
}

/// Compiles all rule files with rows from a control plane. A `file` of a table is then not read.
///
/// # Errors
/// With all problems of all files, when any file has an error.
pub fn compile_with_rows(
    sources: &[Source],
    rows: &Rows,
    options: &Options,
) -> Result<Snapshot, Report> {
    compile_all(sources, Some(rows), options)
}

fn compile_all(
    sources: &[Source],
    rows: Option<&Rows>,
    options: &Options,
) -> Result<Snapshot, Report> {
    let mut problems = Problems::new(sources);
    let domains = read_all(sources, options, &mut problems);
    let mut limits = LimitsBuild::new(*options, problems);
    let mut builds = Vec::new();
    for (name, files) in &domains {
        let mut build = DomainBuild::new(name, builds.len());
        build.settings(files, sources, &mut limits.problems);
        builds.push(build);
    }
    let given = rows;
    let rows = domain::take_rows(&mut builds, given, sources, &mut limits.problems);
    for (build, files) in builds.iter_mut().zip(domains.values()) {
        for file in files {
            build.descriptors(&file.descriptors, &mut limits);
        }
        build.report_unused_tables(&mut limits.problems);
    }
    limits.warn_unknown_replaced();
    if limits.problems.has_errors() {
        return Err(limits.problems.into_report());
    }
    let rules: Arc<[Rule]> = limits.rules.into();
    let domains = builds.into_iter().map(|build| {
        let domain: Domain = build.finish(&rules, &rows.table, *options);
        (Arc::clone(&domain.name), domain)
    });
    let version = version_of(sources.iter().map(|source| source.text.as_str()));
    Ok(Snapshot {
        shows_values: rules.iter().any(Rule::shows_values),
        version: given.map_or(version, |rows| version_with_rows(version, rows)),
        domains: domains.collect(),
        rules,
        limits: limits.limits,
        names: limits.names.into_iter().collect(),
        rows: rows.table,
        warnings: limits.problems.into_report().into_problems(),
    })
}

/// The files by domain, in the order given.
fn read_all(
    sources: &[Source],
    options: &Options,
    problems: &mut Problems<'_>,
) -> IndexMap<String, Vec<RuleFile>, FixedState> {
    let mut domains: IndexMap<String, Vec<RuleFile>, FixedState> = IndexMap::default();
    for (source, file) in sources.iter().zip(0..) {
        if is_row_file(&source.name) {
            continue;
        }
        let Some(read) = document::read(file, source, problems) else {
            continue;
        };
        let files = domains.entry(read.domain.value.clone()).or_default();
        if let Some(first) = files.first()
            && !options.merge_domains
        {
            let name = &read.domain.value;
            let fault = Fault::new("duplicate_domain", format!("domain `{name}` has another file"))
                .related(first.domain.location, "the other is here")
                .hint("keep a domain in one file, or allow files to be merged")
                .compat(format!("duplicate domain '{name}' in config file"));
            problems.error(read.domain.location, fault);
            continue;
        }
        files.push(read);
    }
    domains
}
