// Linear layers: their matrix products, and the steps after a product.
#include <algorithm>

#include "tessera/ops/cuda/cuda_kernels.h"
#include "tessera/ops/cuda/finish.h"

namespace tessera::cuda {
namespace {

View rows_or_empty(View view, int64_t begin, int64_t end) {
  return view ? view.rows(begin, end) : View{};
}

constexpr int64_t kRowsOfPiece = 16;  // the number of rows of a piece is a multiple, for the alignment of 8-bit factors

// Computes `product`, and then calls finish(raw, begin, end). `raw` holds the rows [begin, end) of the product. Usually
// `finish` is called once, for all rows, and `raw` is product.result. The exception: `residual` is the same view as
// product.result. The product must then not overwrite this view, because `finish` still reads the residual. Therefore
// the product is computed in pieces of several rows in context.scratch, and `finish` is called after each piece.
template <typename Finish>
void product_then(const Context& context, Products& products, Product product, View residual, const Finish& finish) {
  const View result = product.result;
  const int64_t num_rows = result.shape[0];
  if (residual.data != result.data) {
    products.run(product);
    finish(result, 0, num_rows);
    return;
  }
  // The scales of some rows are no array, so they are copied to the scratch, too.
  const View left = product.left, added = product.added, scales = product.left_scales;
  const int64_t row_bytes = result.shape[1] * static_cast<int64_t>(size_of(result.dtype)),
                bytes_of_scales = scales ? scales.shape[0] * static_cast<int64_t>(sizeof(float)) : 0;
  const int64_t piece = kScratchBytes / (row_bytes + bytes_of_scales) / kRowsOfPiece * kRowsOfPiece;
  TESSERA_ASSERT(piece > 0);
  for (int64_t begin = 0; begin < num_rows; begin += piece) {
    const int64_t end = std::min(num_rows, begin + piece);
    product.left = left.rows(begin, end);
    product.added = rows_or_empty(added, begin, end);
    product.result = {context.scratch, result.dtype, {end - begin, result.shape[1]}};
    if (scales) {
      product.left_scales = {context.scratch + piece * row_bytes, DType::f32, {scales.shape[0], end - begin}};
      const auto width = static_cast<size_t>(end - begin) * sizeof(float);
      check(cudaMemcpy2DAsync(product.left_scales.data, width, scales.as<float>() + begin,
                              static_cast<size_t>(num_rows) * sizeof(float), width,
                              static_cast<size_t>(scales.shape[0]), cudaMemcpyDeviceToDevice, context.stream),
            "cudaMemcpy2DAsync");
    }
    products.run(product);
    finish(product.result, begin, end);
  }
}

LinearEpilogue rows_of(const LinearEpilogue& epilogue, int64_t begin, int64_t end) {
  LinearEpilogue part = epilogue;
  part.residual = rows_or_empty(epilogue.residual, begin, end);
  part.dropout.row_ids = rows_or_empty(epilogue.dropout.row_ids, begin, end);
  return part;
}

// Adds the bias and the epilogue to `product`, so one kernel computes all of them. Returns false if they need their own
// kernel. In this case, `product` may have changed and must not be run. If the function returns true, the caller must
// still check products.can(product).
bool fuse_forward(Product& product, const Kernels::LinearForward& call) {
  const LinearEpilogue& epilogue = call.epilogue;
  if (epilogue.dropout.rate > 0 || epilogue.activation == Activation::relu) return false;
  product.bias = call.bias;
  if (epilogue.activation == Activation::none) {
    if (call.preactivation || (call.added && epilogue.residual)) return false;
    product.fused = call.bias ? Fused::bias : Fused::nothing;
    product.added = call.added ? call.added : epilogue.residual;
    return true;
  }
  // Fused::gelu needs a bias. A residual is not fused, because cuBLASLt would add it before GELU. In f64, GELU is not
  // fused: cuBLASLt and Tessera round √(2/π) differently, and f64 results show the difference.
  if (epilogue.residual || !call.bias || product.left.dtype == DType::f64) return false;
  product.fused = call.preactivation ? Fused::gelu_keep : Fused::gelu;
  product.aux = call.preactivation;
  product.added = call.added;
  return true;
}

}  // namespace

void CudaKernels::linear_forward(const LinearForward& call) {
  const View bias = call.bias, preactivation = call.preactivation, y = call.y;
  const View x = call.x8 ? call.x8.values : call.x, weight = call.weight8 ? call.weight8.values : call.weight;
  TESSERA_ASSERT(weight.shape == (Shape{y.shape[1], x.shape[1]}) && y.shape[0] == x.shape[0]);
  TESSERA_ASSERT(!bias || bias.num_elems() == y.shape[1]);
  TESSERA_ASSERT(!call.added || (call.added.shape == y.shape && call.added.data != call.epilogue.residual.data));
  count_linear(x, weight);
  TESSERA_ASSERT(!call.x8 || (!call.x8.squares && call.weight8.squares));
  if (x.shape[0] == 0) return;
  Product product{.kind = ProductKind::forward,
                  .left = x,
                  .right = weight,
                  .result = y,
                  .left_scales = call.x8.scales,
                  .right_scales = call.weight8.scales};
  if (fuse_forward(product, call) && products_.can(product)) return products_.run(product);
  product = {.kind = ProductKind::forward,
             .left = x,
             .right = weight,
             .result = preactivation ? preactivation : y,
             .left_scales = call.x8.scales,
             .right_scales = call.weight8.scales,
             .added = call.added,
             .fused = Fused::bias,
             .bias = bias};
  const bool adds_bias = bias && products_.can(product);
  if (!adds_bias) product.fused = Fused::nothing, product.bias = {};
  if (preactivation && !adds_bias) {  // `preactivation` must include the bias
    products_.run(product);
    if (bias) finish_forward(context_, {.from = preactivation, .bias = bias, .to = preactivation});
    return finish_forward(context_, {.from = preactivation, .epilogue = call.epilogue, .to = y});
  }
  product_then(context_, products_, product, call.epilogue.residual, [&](View raw, int64_t begin, int64_t end) {
    finish_forward(context_, {.from = raw,
                              .bias = adds_bias ? View{} : bias,
                              .epilogue = rows_of(call.epilogue, begin, end),
                              .to = y.rows(begin, end)});
  });
}

void CudaKernels::linear_backward_input(const LinearBackwardInput& call) {
  const bool in_8_bits = static_cast<bool>(call.d_y8);
  const View d_y = in_8_bits ? call.d_y8.values : call.d_y, d_x = call.d_x;
  const View weight = in_8_bits ? call.weight8.values : call.weight;
  const int64_t O = d_y.shape[1], I = d_x.shape[1];
  const LinearEpilogue& epilogue = call.epilogue;
  TESSERA_ASSERT(weight.shape == (in_8_bits ? Shape{I, O} : Shape{O, I}) && d_x.shape[0] == d_y.shape[0]);
  TESSERA_ASSERT(epilogue.activation == Activation::none || call.preactivation);
  count_linear(d_y, weight);
  if (d_y.shape[0] == 0) return;
  TESSERA_ASSERT(!in_8_bits || (!call.d_y8.squares && call.weight8.squares));
  TESSERA_ASSERT(!call.added || (call.added.shape == d_x.shape && call.added.data != epilogue.residual.data));
  Product product{.kind = in_8_bits ? ProductKind::forward : ProductKind::backward_input,
                  .left = d_y,
                  .right = weight,
                  .result = d_x,
                  .left_scales = call.d_y8.scales,
                  .right_scales = call.weight8.scales};
  const bool one_sum = !call.added || !epilogue.residual;
  if (!(epilogue.dropout.rate > 0) && epilogue.activation == Activation::none && !call.x && one_sum) {
    product.added = call.added ? call.added : epilogue.residual;
    if (products_.can(product)) return products_.run(product);
  }
  product.added = call.added;
  // A product with cuBLASLt's epilogue for GELU's gradient (DGELU) takes longer than a product and a separate kernel.
  product_then(context_, products_, product, epilogue.residual, [&](View raw, int64_t begin, int64_t end) {
    finish_backward(context_, {.from = raw,
                               .epilogue = rows_of(epilogue, begin, end),
                               .preactivation = rows_or_empty(call.preactivation, begin, end),
                               .to = d_x.rows(begin, end),
                               .made_again = rows_or_empty(call.x, begin, end)});
  });
}

// linear_backward_bias() computes the gradient of the bias in a separate kernel. cuBLASLt could compute the gradients
// of weight and bias in one kernel (BGRADB), but that takes longer.
void CudaKernels::linear_backward_weight(View d_y, View x, bool fresh, View d_weight) {
  const int64_t num_rows = d_y.shape[0];
  TESSERA_ASSERT(x.shape[0] == num_rows && d_weight.shape == (Shape{d_y.shape[1], x.shape[1]}));
  TESSERA_ASSERT(num_rows > 0 || !fresh);
  count_linear(d_y, d_weight);
  if (num_rows == 0) return;
  products_.run({.kind = ProductKind::backward_weight,
                 .left = d_y,
                 .right = x,
                 .result = d_weight,
                 .added = fresh ? View{} : d_weight});
}

void CudaKernels::linear_backward_weight8(const Float8Matrix& d_y, const Float8Matrix& x, bool fresh, View d_weight) {
  const int64_t O = d_y.values.shape[0], I = x.values.shape[0], N = x.values.shape[1];
  TESSERA_ASSERT(d_y.values.shape[1] == N && d_weight.shape == (Shape{O, I}) && (N > 0 || !fresh));
  TESSERA_ASSERT(!d_y.squares && x.squares);
  flops_ += linear_flops(N, I, O);
  if (N == 0) return;
  products_.run({.kind = ProductKind::forward,
                 .left = d_y.values,
                 .right = x.values,
                 .result = d_weight,
                 .left_scales = d_y.scales,
                 .right_scales = x.scales,
                 .added = fresh ? View{} : d_weight});
}

}  // namespace tessera::cuda
