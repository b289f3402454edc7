//! What tonic serves: health and reflection.

use tonic::service::Routes;

use super::health::HealthHandle;
use super::settings::RlsSettings;

/// The service's own description, for reflection.
const DESCRIPTION: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/rls.bin"));

/// Health, and reflection where it is wanted. Every other method is unknown to it.
pub(super) fn routes(health: &HealthHandle, settings: &RlsSettings) -> Routes {
    let routes = Routes::new(health.server());
    let routes = if settings.reflection { reflected(routes) } else { routes };
    routes.prepare()
}

fn reflected(routes: Routes) -> Routes {
    let described = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTION)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    // Older clients ask for the alpha version only.
    let (Ok(v1), Ok(v1alpha)) = (described().build_v1(), described().build_v1alpha()) else {
        // Descriptions are compiled in; a test sees that they can be read.
        return routes;
    };
    routes.add_service(v1).add_service(v1alpha)
}
