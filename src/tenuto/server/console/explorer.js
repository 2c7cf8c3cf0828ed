/** Starts Swagger UI on the page of routes. Its bundle is a classic script, so it is a global here. */

/* global SwaggerUIBundle */
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#explorer",
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  // Nothing leaves for another host: no validator, no icons.
  validatorUrl: null,
  docExpansion: "list",
});
