//! The page of differences is the one that the list makes.

use std::fs;
use std::path::Path;

use tidegate_upstream_diff::{PAGE, page};

#[test]
fn the_page_of_differences_is_made_from_the_list() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").join(PAGE);
    let committed = fs::read_to_string(&path).expect("the page is there");
    let how = "cargo run -p tidegate-upstream-diff -- --page";
    assert!(committed == page(), "{PAGE} is not what `{how}` prints");
}
