// TfschedUngroup, the kernel: reads the shapes and puts out a view of the received bytes for each tensor.
#include <cstring>
#include <vector>

#include "cc/ops/transfers/grouped.h"
#include "cc/transport/tagged_buffer.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/errors.h"

namespace tfsched {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// Takes numbers off the front of some bytes, which anybody may have sent.
class Header {
 public:
  explicit Header(const Tensor& joined) : data_(static_cast<const char*>(joined.data())), size_(joined.NumElements()) {}

  bool Next(int64_t* value) {
    if (size_ - taken_ < static_cast<int64_t>(sizeof(*value))) return false;
    std::memcpy(value, data_ + taken_, sizeof(*value));
    taken_ += sizeof(*value);
    return true;
  }
  bool NextShape(TensorShape* shape) {
    int64_t rank = 0;
    if (!Next(&rank) || rank < 0 || rank > TensorShape::MaxDimensions()) return false;
    std::vector<int64_t> dims(rank);
    for (int64_t& dim : dims) {
      if (!Next(&dim)) return false;
    }
    return TensorShape::BuildTensorShape(dims, shape).ok();
  }
  int64_t taken() const { return taken_; }

 private:
  const char* const data_;
  const int64_t size_;
  int64_t taken_ = 0;
};

class UngroupKernel : public OpKernel {
 public:
  explicit UngroupKernel(OpKernelConstruction* ctx) : OpKernel(ctx) {
    for (const tensorflow::DataType dtype : output_types()) {
      OP_REQUIRES(ctx, tensorflow::DataTypeCanUseMemcpy(dtype),
                  tensorflow::errors::InvalidArgument("tfsched: ", name(), " cannot put out tensors of type ",
                                                      tensorflow::DataTypeString(dtype), "; ask for numbers."));
    }
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor& joined = ctx->input(0);
    const auto malformed = [this, &joined] {
      return tensorflow::errors::InvalidArgument("tfsched: ", name(), " got ", joined.NumElements(),
                                                 " bytes that no TfschedGroup of ", num_outputs(),
                                                 " such tensors has made; give it the output of one.");
    };
    Header header(joined);
    std::vector<TensorShape> shapes(num_outputs());
    for (TensorShape& shape : shapes) OP_REQUIRES(ctx, header.NextShape(&shape), malformed());
    int64_t at = InWholeBlocks(header.taken());
    for (int output = 0; output < num_outputs(); ++output) {
      const int64_t element_bytes = tensorflow::DataTypeSize(output_type(output));
      const int64_t elements = shapes[output].num_elements();
      OP_REQUIRES(ctx, at <= joined.NumElements() && elements <= (joined.NumElements() - at) / element_bytes, malformed());
      OP_REQUIRES_OK(ctx, PutOut(ctx, output, shapes[output], joined, at, elements * element_bytes));
      at += InWholeBlocks(elements * element_bytes);
    }
    OP_REQUIRES(ctx, at == joined.NumElements(), malformed());
  }

  bool IsExpensive() override { return false; }

 private:
  static absl::Status PutOut(OpKernelContext* ctx, int output, const TensorShape& shape, const Tensor& joined, int64_t at,
                             int64_t bytes) {
    const tensorflow::DataType dtype = ctx->expected_output_dtype(output);
    char* const from = static_cast<char*>(joined.data()) + at;
    // What was received in another way may lie anywhere.
    if (bytes > 0 && reinterpret_cast<uintptr_t>(from) % kBlockBytes == 0) {
      const tensorflow::core::RefCountPtr<BufferView> view(new BufferView(BufferOf(joined), at, bytes));
      ctx->set_output(output, Tensor(dtype, shape, view.get()));  // takes a reference of its own
      return absl::OkStatus();
    }
    Tensor* copy = nullptr;
    TF_RETURN_IF_ERROR(ctx->allocate_output(output, shape, &copy));
    if (bytes > 0) std::memcpy(copy->data(), from, bytes);
    return absl::OkStatus();
  }
};

REGISTER_KERNEL_BUILDER(Name("TfschedUngroup").Device(tensorflow::DEVICE_CPU), UngroupKernel);

}  // namespace
}  // namespace tfsched
