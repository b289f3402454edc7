//! What a million rows cost: bytes, and the time of a look-up. `lookup [RANDOM_VALUES]`

use std::collections::HashMap;
use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use tidegate_row_table::{Minute, NewRow, Rows, TableName};

const ROWS: usize = 1_000_000;

/// Numbers without a pattern.
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

#[expect(clippy::disallowed_methods, reason = "measures real time")]
fn nanoseconds(times: usize, mut work: impl FnMut()) -> f64 {
    let started = Instant::now();
    work();
    started.elapsed().as_secs_f64() * 1e9 / times as f64
}

fn main() -> Result<(), Box<dyn Error>> {
    let random: u64 = std::env::args().nth(1).map_or(Ok(10_000_000), |number| number.parse())?;
    let clients = TableName { domain: "api".to_owned(), table: "clients".to_owned() };
    let values: Vec<String> = (0..ROWS).map(|number| format!("client-{number:07}")).collect();
    let new = |value| NewRow { table: &clients, value, terms: "gold", until: None };
    let new: Vec<NewRow<'_>> = values.iter().map(|value| new(value)).collect();
    let mut built = None;
    let build = nanoseconds(1, || built = Some(Rows::build(ROWS, 7, &new)));
    let rows = built.ok_or("nothing was built")??;
    let (table, tag, now) = (&rows.table, clients.tag(), Minute(0));
    println!("bytes a row: {:.2}", table.bytes().len() as f64 / ROWS as f64);
    println!("build of a million rows: {:.0} ms", build / 1e6);

    let order: Vec<usize> = (0..ROWS as u64)
        .map(|number| usize::try_from(mix(number) >> 33).unwrap_or(0) % ROWS)
        .collect();
    let strangers: Vec<String> = (0..ROWS).map(|number| format!("nobody-{number:07}")).collect();
    let map: HashMap<&str, u16> = values.iter().map(|value| (value.as_str(), 1)).collect();
    let warm = nanoseconds(ROWS, || {
        (0..ROWS).for_each(|n| _ = black_box(table.find(tag, black_box(&values[n % 1_000]), now)));
    });
    let cold = |texts: &[String]| {
        let find = |at: &usize| _ = black_box(table.find(tag, black_box(&texts[*at]), now));
        nanoseconds(ROWS, || order.iter().for_each(find))
    };
    let read = nanoseconds(ROWS, || {
        order.iter().for_each(|at| _ = black_box(black_box(&values[*at]).as_bytes()[0]));
    });
    let mapped = nanoseconds(ROWS, || {
        order.iter().for_each(|at| _ = black_box(map.get(black_box(values[*at].as_str()))));
    });
    println!("look-up, warm: {warm:.1} ns");
    println!(
        "look-up, cold, with a row: {:.1} ns, without: {:.1} ns",
        cold(&values),
        cold(&strangers)
    );
    println!("of that the text itself: {read:.1} ns; std's HashMap, cold: {mapped:.1} ns");

    let mut wrong = 0_u64;
    let mut text = String::new();
    for number in 0..random {
        text.clear();
        std::fmt::Write::write_fmt(&mut text, format_args!("{:016x}", mix(number)))?;
        wrong += u64::from(table.find(tag, &text, now).is_some());
    }
    println!("rows found for {random} strangers: {wrong}");
    Ok(())
}
