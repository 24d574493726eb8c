//! The OpenAPI document, made from the table of routes.

use axum::http::Method;
use utoipa::openapi::path::{
    HttpMethod, OperationBuilder, Parameter, ParameterBuilder, ParameterIn,
};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{ObjectBuilder, Ref, Schema, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, InfoBuilder, OpenApi, OpenApiBuilder, Paths, RefOr,
    Required, ResponseBuilder,
};
use utoipa::{PartialSchema, ToSchema};

use crate::route::{Access, Reach, Route};

const BEARER: &str = "token";

pub fn document(routes: &[Route]) -> OpenApi {
    let mut paths = Paths::new();
    let mut components = ComponentsBuilder::new()
        .schema(ff_api::Problem::name(), ff_api::Problem::schema())
        .security_scheme(
            BEARER,
            SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build()),
        );
    for route in routes {
        for shape in route.takes.iter().chain(&route.gives) {
            components = components.schemas_from_iter(shape.schemas.iter().cloned());
        }
        paths.add_path_operation(route.path, vec![method(&route.method)], operation(route));
    }
    let description = "Durable execution. Errors are RFC 9457 problems with stable codes.";
    OpenApiBuilder::new()
        .info(
            InfoBuilder::new()
                .title("FlowFabric")
                .version(env!("CARGO_PKG_VERSION"))
                .description(Some(description))
                .build(),
        )
        .paths(paths)
        .components(Some(components.build()))
        .build()
}

fn method(method: &Method) -> HttpMethod {
    match *method {
        Method::POST => HttpMethod::Post,
        Method::PUT => HttpMethod::Put,
        Method::PATCH => HttpMethod::Patch,
        Method::DELETE => HttpMethod::Delete,
        _ => HttpMethod::Get,
    }
}

fn operation(route: &Route) -> utoipa::openapi::path::Operation {
    let mut operation = OperationBuilder::new()
        .operation_id(Some(route.name))
        .summary(Some(route.summary))
        .tag(tag(route.path))
        .parameters(Some(parameters(route)));
    if let Some(takes) = &route.takes {
        let content = ContentBuilder::new().schema(Some(takes.reference.clone())).build();
        let body = RequestBodyBuilder::new().content("application/json", content);
        operation = operation.request_body(Some(body.required(Some(Required::True)).build()));
    }
    operation = operation.response(route.success.to_string(), success(route));
    let problem = Ref::from_schema_name(ff_api::Problem::name());
    let problem = ContentBuilder::new().schema(Some(RefOr::Ref(problem))).build();
    let refused = ResponseBuilder::new()
        .description("A problem; `code` says which.")
        .content("application/problem+json", problem);
    operation = operation.response("default", refused.build());
    match route.access {
        Access::Public => operation.build(),
        Access::Waitpoint => {
            let about = "Needs the token of a waitpoint and no other.";
            operation.description(Some(about)).build()
        }
        Access::Known => operation.security(requirement([])).build(),
        Access::Scoped(scope) => {
            let operation = operation.security(requirement([]));
            operation.description(Some(format!("Needs the scope `{}`.", scope.as_str()))).build()
        }
    }
}

fn requirement<const N: usize>(scopes: [&str; N]) -> SecurityRequirement {
    SecurityRequirement::new(BEARER, scopes)
}

fn success(route: &Route) -> utoipa::openapi::Response {
    let response = ResponseBuilder::new().description(route.summary);
    match &route.gives {
        Some(gives) => {
            let content = ContentBuilder::new().schema(Some(gives.reference.clone())).build();
            response.content(route.content_type, content).build()
        }
        None if route.content_type == "application/json" => response.build(),
        None => {
            let content = ContentBuilder::new().schema(Some(text())).build();
            response.content(route.content_type, content).build()
        }
    }
}

fn parameters(route: &Route) -> Vec<Parameter> {
    let in_path = route
        .path
        .split('/')
        .filter_map(|part| part.strip_prefix('{').and_then(|part| part.strip_suffix('}')));
    let parameter = |name: &str, place: ParameterIn, required: Required, about: &str| {
        ParameterBuilder::new()
            .name(name)
            .parameter_in(place)
            .required(required)
            .description(Some(about))
            .schema(Some(text()))
            .build()
    };
    let mut parameters: Vec<Parameter> =
        in_path.map(|name| parameter(name, ParameterIn::Path, Required::True, "")).collect();
    if matches!(route.reach, Reach::Namespace | Reach::Own) {
        let about = "The namespace to act in; the token's only one, or `default`, if absent.";
        parameters.push(parameter("namespace", ParameterIn::Query, Required::False, about));
    }
    if route.method == Method::POST {
        let about = "A repeat with the same key is answered as the first request was.";
        parameters.push(parameter("Idempotency-Key", ParameterIn::Header, Required::False, about));
    }
    parameters.extend(route.query.iter().cloned());
    parameters
}

fn text() -> RefOr<Schema> {
    RefOr::T(ObjectBuilder::new().schema_type(Type::String).into())
}

/// The noun of a path: what follows the version.
fn tag(path: &str) -> &str {
    path.strip_prefix("/v1/").and_then(|rest| rest.split('/').next()).unwrap_or("system")
}

/// Paths that were met twice would hide one another.
#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_route_is_described_once() {
        let routes = crate::table();
        let names: BTreeSet<_> = routes.iter().map(|route| route.name).collect();
        assert_eq!(names.len(), routes.len());
        let json = serde_json::to_value(document(&routes)).unwrap();
        assert!(json["openapi"].as_str().unwrap().starts_with("3.1"));
        let paths = json["paths"].as_object().unwrap();
        let described: usize = paths.values().map(|item| item.as_object().unwrap().len()).sum();
        assert_eq!(described, routes.len());
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let json = serde_json::to_value(document(&crate::table())).unwrap();
        let text = json.to_string();
        for reference in text.split("#/components/schemas/").skip(1) {
            let name = reference.split('"').next().unwrap();
            assert!(json["components"]["schemas"][name].is_object(), "{name} is not defined");
        }
    }
}
