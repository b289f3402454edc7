//! What Envoy is started with: one listener, the rate limit filter, one route.
//!
//! Envoy answers by itself on routes with `direct_response`, before the filter
//! is asked; so every route leads to the service behind it.

use serde_json::{Value, json};

use crate::tidegate::Place;

const HTTP_FILTERS: &str = "type.googleapis.com/envoy.extensions.filters.http";

/// Everything about Envoy that tests vary.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// Where Tidegate is.
    pub(crate) service: Place,
    /// Speaks TLS with Tidegate.
    pub(crate) tls: Option<Tls>,
    /// The route's `rate_limits`.
    pub(crate) rate_limits: Value,
    /// Optional fields of the rate limit filter.
    pub(crate) filter: Value,
    /// The same in the configuration of the filter, where Envoy supports more of their fields.
    pub(crate) filter_rate_limits: Value,
    /// Filters before the rate limit filter.
    pub(crate) filters_before: Vec<Value>,
    /// Fields of the route, beside the match.
    pub(crate) route: Value,
    /// Fields of the cluster that Tidegate is.
    pub(crate) cluster: Value,
}

/// Whom Envoy believes, and who it is itself; all PEM.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    /// The authority that signed Tidegate's certificate.
    pub(crate) authority: String,
    /// Envoy's own certificate and its key.
    pub(crate) identity: Option<(String, String)>,
}

impl Setup {
    /// Limits by the header field `x-user`, as key `user`.
    pub(crate) fn new(service: Place) -> Self {
        Setup {
            service,
            tls: None,
            rate_limits: json!([{"actions": [header("x-user", "user")]}]),
            filter: json!({}),
            filter_rate_limits: Value::Null,
            filters_before: Vec::new(),
            route: json!({}),
            cluster: json!({}),
        }
    }

    /// The bootstrap, with a service behind Envoy on this port of the machine.
    pub(crate) fn bootstrap(&self, upstream_port: u16) -> Value {
        json!({
            "node": {"id": "test", "cluster": "proxy"},
            "admin": {"address": tcp("127.0.0.1", 0)},
            "static_resources": {
                "listeners": [{
                    "name": "entry",
                    "address": tcp("127.0.0.1", 0),
                    "filter_chains": [{"filters": [self.connection_manager()]}],
                }],
                "clusters": [
                    cluster("service", &tcp("127.0.0.1", upstream_port)),
                    self.tidegate(),
                ],
            },
        })
    }

    fn connection_manager(&self) -> Value {
        let mut filters = self.filters_before.clone();
        filters.push(json!({
            "name": "envoy.filters.http.ratelimit",
            "typed_config": self.rate_limit_filter(),
        }));
        filters.push(json!({
            "name": "envoy.filters.http.router",
            "typed_config": {"@type": format!("{HTTP_FILTERS}.router.v3.Router")},
        }));
        let mut route = json!({
            "match": {"prefix": "/"},
            "route": {"cluster": "service", "rate_limits": self.rate_limits},
        });
        if !self.filter_rate_limits.is_null() {
            route["typed_per_filter_config"] = json!({"envoy.filters.http.ratelimit": {
                "@type": format!("{HTTP_FILTERS}.ratelimit.v3.RateLimitPerRoute"),
                "rate_limits": self.filter_rate_limits,
            }});
        }
        merge(&mut route, &self.route);
        json!({
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.network.\
                          http_connection_manager.v3.HttpConnectionManager",
                "stat_prefix": "entry",
                // Tests say in x-forwarded-for which client they are.
                "use_remote_address": true,
                "xff_num_trusted_hops": 1,
                "http_filters": filters,
                "route_config": {
                    "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}],
                },
            },
        })
    }

    fn rate_limit_filter(&self) -> Value {
        let mut filter = json!({
            "@type": format!("{HTTP_FILTERS}.ratelimit.v3.RateLimit"),
            "domain": "shop",
            // Envoy gives up after 20 ms by default, which a busy machine may take.
            "timeout": "30s",
            "rate_limit_service": {
                "transport_api_version": "V3",
                "grpc_service": {"envoy_grpc": {"cluster_name": "tidegate"}},
            },
        });
        merge(&mut filter, &self.filter);
        filter
    }

    fn tidegate(&self) -> Value {
        let address = match &self.service {
            Place::Tcp(address) => tcp(&address.ip().to_string(), address.port()),
            Place::Unix(path) => json!({"pipe": {"path": path}}),
        };
        let mut tidegate = cluster("tidegate", &address);
        merge(
            &mut tidegate,
            &json!({"typed_extension_protocol_options": {
                "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                    "@type": "type.googleapis.com/\
                              envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                    "explicit_http_config": {"http2_protocol_options": {}},
                },
            }}),
        );
        if let Some(tls) = &self.tls {
            merge(&mut tidegate, &json!({"transport_socket": tls.transport_socket()}));
        }
        merge(&mut tidegate, &self.cluster);
        tidegate
    }
}

impl Tls {
    fn transport_socket(&self) -> Value {
        let identity = self.identity.iter().map(|(certificate, key)| {
            json!({
                "certificate_chain": {"inline_string": certificate},
                "private_key": {"inline_string": key},
            })
        });
        let believed = json!({
            "trusted_ca": {"inline_string": self.authority},
            "match_typed_subject_alt_names": [
                {"san_type": "DNS", "matcher": {"exact": "localhost"}},
            ],
        });
        json!({
            "name": "envoy.transport_sockets.tls",
            "typed_config": {
                "@type": "type.googleapis.com/\
                          envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
                "sni": "localhost",
                "common_tls_context": {
                    "alpn_protocols": ["h2"],
                    "tls_certificates": identity.collect::<Vec<_>>(),
                    "validation_context": believed,
                },
            },
        })
    }
}

/// The action that turns a header field into a descriptor entry.
pub(crate) fn header(name: &str, key: &str) -> Value {
    json!({"request_headers": {"header_name": name, "descriptor_key": key}})
}

/// The action that always makes this entry.
pub(crate) fn fixed(key: &str, value: &str) -> Value {
    json!({"generic_key": {"descriptor_key": key, "descriptor_value": value}})
}

/// A filter that sets metadata of the request.
pub(crate) fn sets_metadata(namespace: &str, value: &Value) -> Value {
    json!({
        "name": "envoy.filters.http.set_metadata",
        "typed_config": {
            "@type": format!("{HTTP_FILTERS}.set_metadata.v3.Config"),
            "metadata": [{"metadata_namespace": namespace, "value": value}],
        },
    })
}

/// A filter that keeps a number from a header field where the rate limit
/// filter looks for the hits of a request.
pub(crate) fn takes_hits_from(name: &str) -> Value {
    json!({
        "name": "envoy.filters.http.set_filter_state",
        "typed_config": {
            "@type": format!("{HTTP_FILTERS}.set_filter_state.v3.Config"),
            "on_request_headers": [{
                "object_key": "envoy.ratelimit.hits_addend",
                "format_string": {"text_format_source": {"inline_string": format!("%REQ({name})%")}},
                "skip_if_empty": true,
            }],
        },
    })
}

fn tcp(host: &str, port: u16) -> Value {
    json!({"socket_address": {"address": host, "port_value": port}})
}

fn cluster(name: &str, address: &Value) -> Value {
    json!({
        "name": name,
        "type": "STATIC",
        "connect_timeout": "30s",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
    })
}

/// Adds the fields of one object to another, down to any depth that both have.
fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (name, value) in more {
                merge(into.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more.clone(),
    }
}
