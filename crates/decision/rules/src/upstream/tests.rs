use super::*;

/// The error for one file after the first two lines of a domain `a`; its name is left out.
fn error(descriptors: &str) -> String {
    error_of_file(&format!("domain: a\ndescriptors:\n{descriptors}"))
}

fn error_of_file(text: &str) -> String {
    let error = upstream_error(&[Source::new("config.basic.yaml", text)], false);
    let error = error.unwrap_or_default();
    error.strip_prefix("config.basic.yaml: ").unwrap_or(&error).to_owned()
}

// The texts are those of the real program; `make upstream` compares many more.
#[test]
fn errors_are_worded_as_by_upstream() {
    let cases = [
        ("- {value: x}", "descriptor has empty key"),
        ("- {key: a}\n- {key: a}", "duplicate descriptor composite key 'a.a'"),
        ("- {key: a, value: b}\n- {key: a_b}", "duplicate descriptor composite key 'a.a_b'"),
        ("- {key: a, rate_limit: {}}", "invalid rate limit unit ''"),
        ("- {key: a, rate_limit: {unit: fortnight}}", "invalid rate limit unit 'fortnight'"),
        (
            "- {key: a, rate_limit: {unit: day, unlimited: true}}",
            "should not specify rate limit unit when unlimited",
        ),
        (
            "- {key: a, rate_limit: {unit: day, replaces: [{name: ''}]}}",
            "should not have an empty replaces entry",
        ),
        (
            "- {key: a, rate_limit: {unit: day, name: n, replaces: [{name: n}]}}",
            "replaces should not contain name of same descriptor",
        ),
        ("- {key: a, ratelimit: {}}", "config error, unknown key 'ratelimit'"),
        ("- {0.25: a}", "config error, key is not of type string: 0.25"),
        ("- a", "config error, yaml file contains list of type other than map: a"),
        ("- {key: a, rate_limit: {unit: day, requests_per_unit: 1.5}}", "error checking config"),
        (
            "- {key: a, rate_limit: {unit: day, requests_per_unit: -1}}",
            "error loading config file: yaml: unmarshal errors:\n  \
             line 3: cannot unmarshal !!int `-1` into uint32",
        ),
        (
            "- key: 5\n  shadow_mode: 3\n  rate_limit: {unit: day, requests_per_unit: a long text}",
            "error loading config file: yaml: unmarshal errors:\n  \
             line 4: cannot unmarshal !!int `3` into bool\n  \
             line 5: cannot unmarshal !!str `a long ...` into uint32",
        ),
        ("- {key: a, rate_limit: {unit: day, requests_per_unit: 1}}", ""),
    ];
    for (descriptors, expected) in cases {
        assert_eq!(error(descriptors), expected, "{descriptors}");
    }
}

#[test]
fn a_file_that_is_no_mapping_is_refused_as_by_upstream() {
    for (text, expected) in [
        ("", "config file cannot have empty domain"),
        ("domain: ''", "config file cannot have empty domain"),
        (
            "[1, 2]",
            "error loading config file: yaml: unmarshal errors:\n  \
             line 1: cannot unmarshal !!seq into map[interface {}]interface {}",
        ),
        (
            "hello",
            "error loading config file: yaml: unmarshal errors:\n  \
             line 1: cannot unmarshal !!str `hello` into map[interface {}]interface {}",
        ),
    ] {
        assert_eq!(error_of_file(text), expected, "{text}");
    }
}

#[test]
fn a_domain_in_two_files_is_an_error_unless_they_are_merged() {
    let files = [
        Source::new("config.one.yaml", "domain: a\ndescriptors: [{key: x}]"),
        Source::new("config.two.yaml", "domain: a\ndescriptors: [{key: x}]"),
    ];
    let error = upstream_error(&files, false);
    assert_eq!(error.as_deref(), Some("config.two.yaml: duplicate domain 'a' in config file"));
    let error = upstream_error(&files, true);
    let duplicate = "config.two.yaml: duplicate descriptor composite key 'a.x'";
    assert_eq!(error.as_deref(), Some(duplicate));
}
