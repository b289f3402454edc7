//! Rows are found, others are not, and no bytes make a panic.

use std::collections::HashMap;

use proptest::prelude::*;
use tidegate_row_table::{
    BaseHour, BuildError, LineBuffer, Minute, NewRow, RowTable, Rows, TERMS_MAX, TableFault,
    TableName,
};

fn table(name: &str) -> TableName {
    TableName { domain: "api".to_owned(), table: name.to_owned() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_row_is_found_until_it_ends_and_no_other(
        known in prop::collection::hash_map(
            (0..2_usize, "[a-d]{0,5}"),
            ("[a-c]", prop::option::of(1_000_000..1_100_000_u32)),
            0..300,
        ),
        asked in prop::collection::vec("[a-d]{0,5}", 100),
        slack in 0..50_usize,
        key: u64,
        now in 1_000_000..1_100_000_u32,
    ) {
        let tables = [table("clients"), table("tenants")];
        let known: Vec<_> = known.into_iter().collect();
        let new: Vec<NewRow<'_>> = known.iter().map(|((table, value), (terms, until))| NewRow {
            table: &tables[*table],
            value,
            terms,
            until: until.map(Minute),
        }).collect();
        let rows = Rows::build(known.len() + slack, key, &new).unwrap();
        prop_assert_eq!(rows.table.rows(), known.len());
        prop_assert_eq!(rows.table.check(rows.terms.len()), Ok(known.len()));
        let by_value: HashMap<_, _> = known.iter().cloned().collect();
        for value in known.iter().map(|((_, value), _)| value).chain(&asked) {
            for (index, name) in tables.iter().enumerate() {
                let expected = by_value.get(&(index, value.clone()));
                let found = rows.table.find(name.tag(), value, Minute(now));
                let found = found.map(|number| rows.terms[number.index()].clone());
                let holds = expected.filter(|(_, until)| until.is_none_or(|until| until > now));
                prop_assert_eq!(found.as_ref().map(|terms| &terms.text), holds.map(|(terms, _)| terms));
                prop_assert!(found.is_none_or(|terms| terms.table == *name));
                let end = rows.table.end_of(name.tag(), value);
                prop_assert_eq!(end, expected.map(|(_, until)| until.map(Minute)));
            }
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(
        bytes in prop::collection::vec(any::<u8>(), 128), key: u64, base: u32, value in ".{0,20}", now: u32,
    ) {
        let mut lines = LineBuffer::of_lines(2);
        lines.bytes_mut().copy_from_slice(&bytes);
        let table = RowTable::new(lines, key, BaseHour(base)).unwrap();
        let _ = table.find(self::table("clients").tag(), &value, Minute(now));
        let _ = table.end_of(self::table("clients").tag(), &value);
        let _ = table.check(3);
    }
}

fn full(rows: usize) -> Rows {
    let clients = table("clients");
    let values: Vec<String> = (0..rows).map(|number| format!("client-{number}")).collect();
    let new: Vec<NewRow<'_>> = values
        .iter()
        .map(|value| NewRow { table: &clients, value, terms: "gold", until: None })
        .collect();
    Rows::build(rows, 1, &new).expect("they fit")
}

#[test]
fn a_full_table_of_any_size_takes_sixteen_bytes_a_row() {
    for rows in (1..200).chain([1_000, 10_000, 100_000]) {
        let built = full(rows);
        assert_eq!(built.table.rows(), rows);
        assert_eq!(built.table.bytes().len(), rows.div_ceil(4) * 64);
    }
}

#[test]
fn the_same_rows_give_the_same_bytes() {
    assert_eq!(full(10_000).table.bytes(), full(10_000).table.bytes());
}

/// Files hold these numbers. If this test fails, no deployed file can be read.
#[test]
fn hashes_and_tags_never_change() {
    let clients = table("clients");
    let row =
        NewRow { table: &clients, value: "acme", terms: "gold", until: Some(Minute(29_000_000)) };
    let rows = Rows::build(8, 42, &[row]).unwrap();
    let line = rows.table.bytes().chunks(64).position(|line| line[40] > 0).unwrap();
    let bytes: Vec<u8> = rows.table.bytes()[line * 64..][..64].to_vec();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        (line, hex.as_str()),
        (
            0,
            "4b6c42872efd76ff0000000000000000000000000000000000000000000000000000000000000000010000000000000000000100000000000000000014000000"
        )
    );
}

#[test]
fn what_does_not_fit_is_refused() {
    let clients = table("clients");
    let row = |value, terms, until| NewRow { table: &clients, value, terms, until };
    let two = [row("a", "x", None), row("b", "x", None)];
    let refused = Rows::build(1, 0, &two).unwrap_err();
    assert_eq!(refused, BuildError::TooManyRows { rows: 2, capacity: 1 });
    let twice = [row("a", "x", None), row("a", "y", None)];
    assert_eq!(Rows::build(9, 0, &twice).unwrap_err(), BuildError::Duplicate);
    let far = [row("a", "x", Some(Minute(6_000))), row("b", "x", Some(Minute(u32::MAX)))];
    assert_eq!(Rows::build(9, 0, &far).unwrap_err(), BuildError::End { value: "b".to_owned() });
    let texts: Vec<String> = (0..=TERMS_MAX).map(|number| number.to_string()).collect();
    let many: Vec<_> = texts.iter().map(|text| row(text, text, None)).collect();
    let refused = Rows::build(9_000, 0, &many).unwrap_err();
    assert_eq!(refused, BuildError::TooManyTerms { terms: TERMS_MAX + 1 });
    assert!(Rows::build(9_000, 0, &many[1..]).is_ok());
}

#[test]
fn a_table_has_a_line_even_without_rows() {
    let none = Rows::build(0, 0, &[]).unwrap();
    assert!(none.table.find(table("clients").tag(), "a", Minute(0)).is_none());
    let lines = RowTable::new(LineBuffer::of_lines(0), 0, BaseHour(0));
    assert_eq!(lines.unwrap_err(), TableFault::Lines { lines: 0 });
}

#[test]
fn terms_that_the_list_does_not_have_are_found_by_the_check() {
    let rows = full(100);
    assert!(rows.table.check(1).is_ok());
    assert!(matches!(rows.table.check(0), Err(TableFault::UnknownTerms { terms: 1, .. })));
}

#[test]
fn memory_can_be_used_again_once_nobody_reads_it() {
    let rows = full(10);
    let reader = rows.table.clone();
    assert!(rows.table.into_buffer().is_none());
    assert!(reader.into_buffer().is_some());
}
