// Prints the types of an OpenAPI document. clients/generate runs it.
import openapiTS, { astToString } from "openapi-typescript";
import { pathToFileURL } from "node:url";
import ts from "typescript";

const options = {
  // A request may leave out a field that has a default.
  defaultNonNullable: false,
  rootTypes: true,
  rootTypesNoSchemaPrefix: true,
  rootTypesKeepCasing: true,
  transform: ({ format }) => (format === "binary" ? ts.factory.createTypeReferenceNode("Blob") : undefined),
};
process.stdout.write(astToString(await openapiTS(pathToFileURL(process.argv[2]), options)));
