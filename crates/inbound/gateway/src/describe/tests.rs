use http::Request;

use super::*;
use crate::head::{HeadCheck, examine};
use crate::settings::{CostSettings, DescriptorSettings, EntrySettings, HeadSettings};
use tidegate_server::Peer;

fn described(settings: &RouteSettings, uri: &str, client: &str) -> String {
    described_over(&Hop::of(&Peer::default()), settings, uri, client)
}

fn described_over(hop: &Hop, settings: &RouteSettings, uri: &str, client: &str) -> String {
    described_by(&describer(settings), hop, uri, client)
}

fn describer(settings: &RouteSettings) -> Describer {
    let mut problems = Problems::default();
    let describer = Describer::compile(settings, "route", &mut problems).unwrap();
    problems.finish().unwrap();
    describer
}

fn described_by(describer: &Describer, hop: &Hop, uri: &str, client: &str) -> String {
    let request = Request::get(uri).header("host", "a").body(()).unwrap();
    let (mut head, ()) = request.into_parts();
    let Ok(HeadCheck::Sound(target)) = examine(&mut head, &HeadSettings::default(), None) else {
        panic!("{uri} is valid")
    };
    let identity = Identity::default();
    let request = RequestView {
        head: &head,
        target: &target,
        client: client.parse().ok(),
        hop,
        route: "route",
        identity: &identity,
        body_bytes: Some(0),
    };
    let description = describer.describe(&request).unwrap();
    let entries = description.described.entries();
    let descriptors = description.described.descriptors(&entries);
    let entry = |entry: &tidegate_engine::Entry<'_>| format!("{}={}", entry.key, entry.value);
    let texts = descriptors.iter().map(|descriptor| {
        let entries: Vec<_> = descriptor.entries.iter().map(entry).collect();
        format!("{} costs {}", entries.join(","), descriptor.cost.unwrap_or(0))
    });
    texts.collect::<Vec<_>>().join("; ")
}

#[test]
fn an_incomplete_descriptor_is_left_out_and_the_others_stay() {
    let mut settings = RouteSettings::new("route", "api");
    let entry = |key: &str, value| EntrySettings::new(key, value);
    settings.templates = vec!["/users/{id}".to_owned()];
    settings.descriptors = vec![
        DescriptorSettings::new([
            entry("method", ValueFrom::Method),
            entry("missing", ValueFrom::Claim("sub".to_owned())),
        ]),
        DescriptorSettings {
            entries: vec![
                entry("template", ValueFrom::PathTemplate),
                entry("id", ValueFrom::PathParameter("id".to_owned())),
            ],
            cost: Some(CostSettings::Fixed(5)),
        },
        DescriptorSettings::new([entry("plan", ValueFrom::Plan)]),
        DescriptorSettings::new([entry("route", ValueFrom::Route)]),
    ];
    assert_eq!(
        described(&settings, "/users/7", "192.0.2.1"),
        "template=/users/{id},id=7 costs 5; route=route costs 1"
    );
    assert_eq!(described(&settings, "/other", "192.0.2.1"), "route=route costs 1");
}

#[test]
fn an_address_is_cut_to_its_network() {
    let of = |v4_bits, v6_bits, client: &str| {
        let mut settings = RouteSettings::new("route", "api");
        let value = ValueFrom::Address { v4_bits, v6_bits };
        settings.descriptors = vec![DescriptorSettings::new([EntrySettings::new("at", value)])];
        described(&settings, "/", client)
    };
    assert_eq!(of(32, 128, "192.0.2.77"), "at=192.0.2.77 costs 1");
    assert_eq!(of(24, 64, "192.0.2.77"), "at=192.0.2.0/24 costs 1");
    assert_eq!(of(32, 64, "2001:db8::77"), "at=2001:db8::/64 costs 1");
    assert_eq!(of(32, 128, "2001:db8::77"), "at=2001:db8::77 costs 1");
    assert_eq!(of(32, 128, "nobody"), "");
}

#[test]
fn a_direct_client_is_described_like_one_behind_a_proxy() {
    for (client, v6_bits) in [("192.0.2.77", 64), ("2001:db8::77", 64), ("2001:db8::77", 128)] {
        let mut settings = RouteSettings::new("route", "api");
        let value = ValueFrom::Address { v4_bits: 32, v6_bits };
        settings.descriptors = vec![DescriptorSettings::new([EntrySettings::new("at", value)])];
        let address = Some(std::net::SocketAddr::new(client.parse().unwrap(), 4_000));
        let hop = Hop::of(&Peer { address, ..Peer::default() });
        let direct = described_over(&hop, &settings, "/", client);
        assert_eq!(direct, described(&settings, "/", client));
    }
}

#[test]
fn a_cached_description_applies_only_to_its_client_and_route() {
    let route = |key: &str| {
        let mut settings = RouteSettings::new("route", "api");
        let value = ValueFrom::Address { v4_bits: 32, v6_bits: 64 };
        settings.descriptors = vec![DescriptorSettings::new([EntrySettings::new(key, value)])];
        describer(&settings)
    };
    let (first, other) = (route("first"), route("other"));
    let address = Some("192.0.2.77:4000".parse().unwrap());
    let hop = Hop::of(&Peer { address, ..Peer::default() });
    for _ in 0..2 {
        assert_eq!(described_by(&first, &hop, "/", "192.0.2.77"), "first=192.0.2.77 costs 1");
        assert_eq!(described_by(&first, &hop, "/", "192.0.2.78"), "first=192.0.2.78 costs 1");
        assert_eq!(described_by(&other, &hop, "/", "192.0.2.77"), "other=192.0.2.77 costs 1");
    }
}

#[test]
fn values_that_differ_between_requests_are_not_cached() {
    let mut settings = RouteSettings::new("route", "api");
    settings.descriptors = vec![DescriptorSettings::new([
        EntrySettings::new("at", ValueFrom::Address { v4_bits: 32, v6_bits: 64 }),
        EntrySettings::new("path", ValueFrom::Path),
    ])];
    let describer = describer(&settings);
    let address = Some("192.0.2.77:4000".parse().unwrap());
    let hop = Hop::of(&Peer { address, ..Peer::default() });
    for path in ["/a", "/b"] {
        let expected = format!("at=192.0.2.77,path={path} costs 1");
        assert_eq!(described_by(&describer, &hop, path, "192.0.2.77"), expected);
    }
}

proptest::proptest! {
    #[test]
    fn an_address_is_formatted_as_by_the_standard_library(bits: u32) {
        let address = Ipv4Addr::from_bits(bits);
        proptest::prop_assert_eq!(format_ipv4(address), address.to_string());
    }
}
