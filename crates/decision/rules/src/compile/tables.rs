//! Tables of a domain: their rows become terms, and each of the terms a rule.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::FixedState;
use indexmap::IndexMap;
use tidegate_document::{Fault, LocatedValue, Location, Problems, Source, closest};
use tidegate_row_table::{NewRow, Rows, TableName, TableTag};
use xxhash_rust::xxh3::xxh3_64;

use crate::document::{LimitText, RuleFile, Table};
use crate::row_file::{self, beside, is_row_file};
use crate::terms::{RowTerms, block, blocked};

/// The most rules that terms make: each of the terms of a table is a rule beside every rule that names the table.
const ROW_RULES_MAX: usize = 65_536;

/// The tables of a domain by their names.
pub(super) type Tables = IndexMap<Arc<str>, TableBuild, FixedState>;

/// A table under construction.
#[derive(Debug)]
pub(super) struct TableBuild {
    location: Location,
    pub(super) key: LocatedValue<String>,
    file: Option<LocatedValue<String>>,
    /// The rule file that declares it.
    declared_in: String,
    pub(super) tag: TableTag,
    /// The index of its first terms among those of all tables.
    pub(super) first_terms: usize,
    pub(super) terms: Vec<TermsBuild>,
    pub(super) is_used: bool,
}

/// Terms, and which of their numbers found a limit.
#[derive(Debug)]
pub(super) struct TermsBuild {
    location: Location,
    pub(super) text: Arc<str>,
    parsed: RowTerms,
    found: Vec<FoundLimit>,
}

/// What a number of terms found among the rules.
#[derive(Clone, Copy, Debug, Default)]
struct FoundLimit {
    limit: bool,
    /// Whether one of the limits has the burst or the queue that is given.
    own_parameter: bool,
}

/// What terms make of a rule.
#[derive(Debug)]
pub(super) enum Made<'t> {
    /// The limits of a plan.
    Plan(&'t str),
    /// These limits.
    Limits(Vec<LimitText>),
}

/// Adds the tables of a file.
pub(super) fn take_tables(
    tables: &mut Tables,
    domain: &str,
    file: &RuleFile,
    sources: &[Source],
    problems: &mut Problems<'_>,
) {
    for Table { name, key, file: rows } in &file.tables {
        if let Some(first) = tables.get(name.value.as_str()) {
            let fault =
                Fault::new("duplicate_table", format!("table `{}` is given twice", name.value))
                    .related(first.location, "first given here")
                    .hint("keep one of the two");
            problems.error(name.location, fault);
            continue;
        }
        let source = sources.get(name.location.file as usize);
        let named = TableName { domain: domain.to_owned(), table: name.value.clone() };
        let build = TableBuild {
            location: name.location,
            key: key.clone(),
            file: rows.clone(),
            declared_in: source.map(|source| source.name.clone()).unwrap_or_default(),
            tag: named.tag(),
            first_terms: 0,
            terms: Vec::new(),
            is_used: false,
        };
        tables.insert(name.value.as_str().into(), build);
    }
}

/// The location of the first row with these terms, by table and text.
type TermsLocations = HashMap<(TableName, String), Location>;

/// The rows in the files that tables name.
pub(super) fn read_rows<'d>(
    domains: impl Iterator<Item = (&'d str, &'d Tables)>,
    sources: &[Source],
    problems: &mut Problems<'_>,
) -> (Rows, TermsLocations) {
    let mut read = Vec::new();
    for (domain, tables) in domains {
        for (name, table) in tables {
            let Some(file) = &table.file else {
                let fault = Fault::new("no_rows", format!("table `{name}` has no rows"))
                    .hint("give it a `file`, or serve these rules from a control plane");
                problems.warn(table.location, fault);
                continue;
            };
            let wanted = beside(&table.declared_in, &file.value);
            let is_it = |source: &Source| source.name == wanted && is_row_file(&source.name);
            let found = sources.iter().position(is_it);
            let Some(found) = found else {
                let fault = Fault::new("no_row_file", format!("there is no file `{wanted}`"))
                    .hint("give its path relative to this file; it ends in `.csv`");
                problems.error(file.location, fault);
                continue;
            };
            let table = TableName { domain: domain.to_owned(), table: name.to_string() };
            let number = u32::try_from(found).unwrap_or(u32::MAX);
            let rows = row_file::read(number, &sources[found], problems);
            let rows = unique(rows, problems);
            read.push((table, sources[found].text.as_str(), rows));
        }
    }
    let mut locations = TermsLocations::new();
    let mut rows = Vec::new();
    for (table, _, file) in &read {
        for row in file {
            let key = (table.clone(), row.terms.clone());
            locations.entry(key).or_insert(row.location);
            let (value, terms, until) = (row.value.as_str(), row.terms.as_str(), row.until);
            rows.push(NewRow { table, value, terms, until });
        }
    }
    // Nobody outside knows the rows, so nobody can choose values that look like others.
    let key = read.iter().fold(0, |key, (_, text, _)| key ^ xxh3_64(text.as_bytes()));
    let built = Rows::build(rows.len(), key, &rows).unwrap_or_else(|error| {
        let first = read.iter().flat_map(|(.., rows)| rows).map(|row| row.location).next();
        problems.error(first.unwrap_or_default(), Fault::new("rows_do_not_fit", error.to_string()));
        Rows::default()
    });
    (built, locations)
}

/// The rows without those whose value an earlier one has.
fn unique(rows: Vec<row_file::FileRow>, problems: &mut Problems<'_>) -> Vec<row_file::FileRow> {
    let mut known: HashMap<String, Location> = HashMap::with_capacity(rows.len());
    let mut kept = Vec::with_capacity(rows.len());
    for row in rows {
        if let Some(first) = known.get(&row.value) {
            let fault = Fault::new("duplicate_row", format!("`{}` has two rows", row.value))
                .related(*first, "the other is here")
                .hint("keep one of them");
            problems.error(row.location, fault);
            continue;
        }
        known.insert(row.value.clone(), row.location);
        kept.push(row);
    }
    kept
}

impl TableBuild {
    /// Takes the terms that rows of this table have.
    pub(super) fn take_terms(
        &mut self,
        domain: &str,
        name: &str,
        rows: &Rows,
        locations: &TermsLocations,
        problems: &mut Problems<'_>,
    ) {
        let is_ours = |terms: &tidegate_row_table::TermsText| {
            terms.table.domain == domain && terms.table.table == name
        };
        self.first_terms = rows.terms.iter().position(is_ours).unwrap_or(0);
        for terms in rows.terms.iter().skip(self.first_terms).take_while(|terms| is_ours(terms)) {
            let key = (terms.table.clone(), terms.text.clone());
            let location = locations.get(&key).copied().unwrap_or(self.location);
            let parsed = RowTerms::parse(&terms.text).unwrap_or_else(|error| {
                let fault = Fault::new("invalid_terms", error.message).hint(error.hint);
                problems.error(location, fault);
                RowTerms::Unlimited
            });
            let numbers = match &parsed {
                RowTerms::Numbers(numbers) => numbers.len(),
                RowTerms::Blocked | RowTerms::Unlimited | RowTerms::Plan(_) => 0,
            };
            let text = terms.text.as_str().into();
            self.terms.push(TermsBuild {
                location,
                text,
                parsed,
                found: vec![FoundLimit::default(); numbers],
            });
        }
        let others = rows.terms.iter().skip(self.first_terms + self.terms.len());
        if others.filter(|terms| is_ours(terms)).count() > 0 {
            let message = format!("the terms of table `{name}` are not listed together");
            problems.error(self.location, Fault::new("invalid_rows", message));
        }
    }

    /// Whether all rules of its terms fit.
    pub(super) fn fits(&self, rules: usize, problems: &mut Problems<'_>) -> bool {
        if rules.saturating_add(self.terms.len()) <= ROW_RULES_MAX {
            return true;
        }
        let message = format!("terms would make more than {ROW_RULES_MAX} rules");
        let fault = Fault::new("too_many_row_rules", message)
            .hint("round the terms to fewer different ones, or use the table in fewer rules");
        problems.error(self.location, fault);
        false
    }

    /// Reports numbers for limits that no rule of the table has, and a table that no rule names.
    pub(super) fn report_unused(&self, name: &str, problems: &mut Problems<'_>) {
        if !self.is_used {
            let fault = Fault::new("unused_table", format!("no rule uses table `{name}`"))
                .hint(format!("add `overrides: {name}` to a descriptor, or remove the table"));
            problems.warn(self.location, fault);
            return;
        }
        for terms in &self.terms {
            let RowTerms::Numbers(numbers) = &terms.parsed else { continue };
            for (number, found) in numbers.iter().zip(&terms.found) {
                if found.limit {
                    if !found.own_parameter {
                        let message = format!("`{number}`: the limit has no such burst or queue");
                        let hint = "`burst` is of `token_bucket`, `queue` of `leaky_bucket`";
                        let fault = Fault::new("invalid_terms", message).hint(hint);
                        problems.error(terms.location, fault);
                    }
                    continue;
                }
                let message = match number.limit.as_str() {
                    "" => format!(
                        "`{number}` needs a rule with one limit, and table `{name}` has none"
                    ),
                    limit => format!("no rule of table `{name}` has a limit `{limit}`"),
                };
                let hint = "give the limit that `name`, or use the number of the limit, from 1";
                problems.error(terms.location, Fault::new("unknown_limit", message).hint(hint));
            }
        }
    }
}

impl TermsBuild {
    /// What these terms make of a rule with limits of its own.
    pub(super) fn make(&mut self, own: &[LimitText], problems: &mut Problems<'_>) -> Made<'_> {
        let numbers = match &self.parsed {
            RowTerms::Plan(name) => return Made::Plan(name),
            RowTerms::Blocked if own.iter().all(|limit| limit.terms.is_none()) => {
                return Made::Limits(vec![block(self.location)]);
            }
            RowTerms::Blocked => return Made::Limits(own.iter().map(blocked).collect()),
            RowTerms::Unlimited => {
                return Made::Limits(vec![LimitText {
                    terms: None,
                    name: None,
                    replaces: Vec::new(),
                    ..block(self.location)
                }]);
            }
            RowTerms::Numbers(numbers) => numbers,
        };
        let mut limits = own.to_vec();
        for (limit, ordinal) in limits.iter_mut().zip(1..) {
            let is_meant =
                numbers.iter().position(|number| number.is_for(limit, ordinal, own.len()));
            let Some(index) = is_meant else { continue };
            let found = &mut self.found[index];
            found.limit = true;
            found.own_parameter |= numbers[index].has_own_parameter(limit);
            match numbers[index].apply(limit) {
                Ok(changed) => *limit = changed,
                Err(message) => {
                    let fault =
                        Fault::new("invalid_terms", format!("`{}`: {message}", numbers[index]))
                            .related(limit.location, "the limit is here");
                    problems.error(self.location, fault);
                }
            }
        }
        Made::Limits(limits)
    }

    /// Reports that a plan is unknown.
    pub(super) fn unknown_plan<'p>(
        &self,
        name: &str,
        plans: impl Iterator<Item = &'p str>,
        problems: &mut Problems<'_>,
    ) {
        let hint = match closest(name, plans) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "add it to `plans`, or write `blocked`, `unlimited` or `rate=500`".to_owned(),
        };
        let message = format!("no plan is called `{name}`");
        problems.error(self.location, Fault::new("unknown_plan", message).hint(hint));
    }
}
